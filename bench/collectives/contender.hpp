// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <type_traits>

#include <zero/numeric/bfloat16.hpp>

namespace collectives_bench {

enum class operation : std::uint32_t { reduce_scatter, all_gather, all_reduce };
/// What reduce-scatters and all-gathers move; an all_reduce sums doubles.
enum class element : std::uint32_t { fp32, bf16 };

std::string_view name_of(operation what);
std::string_view name_of(element type);

/// One collective, the same on all ranks.
struct workload {
  operation what = operation::reduce_scatter;
  element type = element::fp32;
  std::uint64_t elements = 0;  // of the full side; a multiple of the number of ranks

  std::uint64_t element_bytes() const noexcept {
    if (what == operation::all_reduce) return sizeof(double);
    return type == element::fp32 ? sizeof(float) : sizeof(zero::bfloat16);
  }
  std::uint64_t bytes() const noexcept { return elements * element_bytes(); }
};

/// Where a rank is.
struct rank_place {
  int rank = 0;
  int size = 1;
};

/// Whose ranks they are: threads of one process, forked processes, or processes of an MPI job.
enum class team_kind : std::uint32_t { threads, processes, mpi };
inline constexpr std::array all_team_kinds{team_kind::threads, team_kind::processes,
                                           team_kind::mpi};
std::string_view name_of(team_kind kind);

/// What is measured.
enum class contender_id : std::uint32_t {
  copy,
  threads,
  shm_private,
  shm_shared,
  gloo_2_of_1_mebibyte,
  gloo_4_of_1_mebibyte,
  gloo_2_of_2_mebibytes,
  gloo_4_of_2_mebibytes,
  gloo_unchecked,
  gloo_ring_of_1_mebibyte,
  gloo_ring_of_2_mebibytes,
  gloo_own,
  sockets,
  mpi,
  mpi_own,
};

/// The Gloo backend with as many segments of such a size on their way from each peer.
inline constexpr std::array gloo_segmentations{
    contender_id::gloo_2_of_1_mebibyte, contender_id::gloo_4_of_1_mebibyte,
    contender_id::gloo_2_of_2_mebibytes, contender_id::gloo_4_of_2_mebibytes};
inline constexpr std::array gloo_ring_segmentations{contender_id::gloo_ring_of_1_mebibyte,
                                                    contender_id::gloo_ring_of_2_mebibytes};

/// What the program knows about a contender without running it.
struct contender_facts {
  contender_id id;
  team_kind team;
  bool is_built;
  /// By operation; empty where the contender has no such operation.
  std::array<std::string_view, 3> names;

  std::string_view name(operation what) const { return names[static_cast<std::size_t>(what)]; }
};

inline constexpr std::size_t contender_count = 15;
/// In the order of contender_id, which is the order of the tables.
const std::array<contender_facts, contender_count>& all_contenders();
const contender_facts& facts_of(contender_id id);

/// Input and output of one rank.
struct rank_memory {
  std::byte* full = nullptr;
  std::byte* shard = nullptr;
};

/// One rank's side of something that is measured.
///
/// A reduce-scatter reads `full` and writes `shard`, an all-gather takes its input from its place
/// in `full`, as the engine's do, and an all_reduce replaces the doubles in `full`.
class contender {
 public:
  contender(rank_place place, rank_memory memory) : place_(place), memory_(memory) {}
  contender(const contender&) = delete;
  contender& operator=(const contender&) = delete;
  virtual ~contender() = default;

  virtual void run(const workload& load) = 0;
  /// Where the result lies after run(); null where bytes move and nothing is computed from them.
  virtual const std::byte* result(const workload& load) const;

  const rank_place& place() const noexcept { return place_; }
  const rank_memory& memory() const noexcept { return memory_; }

 private:
  rank_place place_;
  rank_memory memory_;
};

using contender_map = std::map<contender_id, std::unique_ptr<contender>>;

/// Runs the contender on values whose sums are exact in every element type.
/// Throws: std::runtime_error that says which element is wrong.
void verify(contender& subject, const workload& load);

/// Calls function(std::type_identity<T>()).
template <class Function>
void with_element_type(element type, Function&& function) {
  if (type == element::fp32)
    function(std::type_identity<float>());
  else
    function(std::type_identity<zero::bfloat16>());
}

}  // namespace collectives_bench
