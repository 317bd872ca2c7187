// SPDX-License-Identifier: Apache-2.0
#include "contender.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

namespace collectives_bench {
namespace {

#ifdef BENCH_HAS_GLOO
constexpr bool has_gloo = true;
#else
constexpr bool has_gloo = false;
#endif
#ifdef BENCH_MPIRUN
constexpr bool has_mpi = true;
#else
constexpr bool has_mpi = false;
#endif

using id = contender_id;
constexpr std::array<contender_facts, contender_count> table{{
    {id::copy,
     team_kind::threads,
     true,
     {"memcpy of the same bytes", "memcpy of the same bytes", ""}},
    {id::threads, team_kind::threads, true, {"threads", "threads", "threads"}},
    {id::shm_private,
     team_kind::processes,
     true,
     {"shm, private memory", "shm, private memory", "shm"}},
    {id::shm_shared,
     team_kind::processes,
     true,
     {"shm, shared_memory()", "shm, shared_memory()", ""}},
    // An all-gather cuts nothing, so segments are of no concern to it.
    {id::gloo_2_of_1_mebibyte,
     team_kind::processes,
     has_gloo,
     {"gloo direct, 2 x 1 MiB", "gloo direct", "gloo direct"}},
    {id::gloo_4_of_1_mebibyte, team_kind::processes, has_gloo, {"gloo direct, 4 x 1 MiB", "", ""}},
    {id::gloo_2_of_2_mebibytes, team_kind::processes, has_gloo, {"gloo direct, 2 x 2 MiB", "", ""}},
    {id::gloo_4_of_2_mebibytes, team_kind::processes, has_gloo, {"gloo direct, 4 x 2 MiB", "", ""}},
    {id::gloo_unchecked,
     team_kind::processes,
     has_gloo,
     {"gloo direct, 4 x 1 MiB, unchecked", "gloo direct, unchecked", "gloo direct, unchecked"}},
    {id::gloo_ring_of_1_mebibyte,
     team_kind::processes,
     has_gloo,
     {"gloo ring, 4 x 1 MiB", "gloo ring", ""}},
    {id::gloo_ring_of_2_mebibytes,
     team_kind::processes,
     has_gloo,
     {"gloo ring, 4 x 2 MiB", "", ""}},
    {id::gloo_own,
     team_kind::processes,
     has_gloo,
     {"gloo::allreduce (ring)", "gloo::allgather", "gloo::allreduce (ring)"}},
    {id::sockets,
     team_kind::processes,
     true,
     {"duplex TCP sockets, no sum", "duplex TCP sockets", ""}},
    {id::mpi, team_kind::mpi, has_mpi, {"mpi", "mpi", "mpi"}},
    {id::mpi_own,
     team_kind::mpi,
     has_mpi,
     {"MPI_Reduce_scatter_block", "MPI_Allgather", "MPI_Allreduce"}},
}};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (static_cast<std::size_t>(table[i].id) != i) return false;
  }
  return true;
}
static_assert(is_in_order());

/// What rank `rank` contributes to every element of shard `shard`.
float contribution(int rank, int shard) {
  return static_cast<float>(rank + 1 + shard);
}

/// The sum of that over the ranks; exact in bfloat16 up to 8 ranks.
float sum_of_contributions(int size, int shard) {
  return static_cast<float>(size * (size + 1) / 2 + size * shard);
}

template <class T>
void expect(std::span<const T> values, float expected, const std::string& what) {
  const auto wrong = std::find_if(values.begin(), values.end(),
                                  [&](T value) { return static_cast<float>(value) != expected; });
  if (wrong == values.end()) return;
  throw std::runtime_error(what + ": element " + std::to_string(wrong - values.begin()) + " of " +
                           std::to_string(values.size()) + " is " +
                           std::to_string(static_cast<float>(*wrong)) + " and not " +
                           std::to_string(expected));
}

template <class T>
void fill(const contender& subject, const workload& load) {
  const auto [rank, size] = subject.place();
  const std::uint64_t shard_elements = load.elements / static_cast<std::uint64_t>(size);
  T* const full = reinterpret_cast<T*>(subject.memory().full);
  for (int shard = 0; shard < size; ++shard) {
    float value = contribution(rank, shard);
    if (load.what == operation::all_gather && shard != rank) value = 0;
    std::fill_n(full + static_cast<std::uint64_t>(shard) * shard_elements, shard_elements,
                T(value));
  }
  if (load.what == operation::reduce_scatter && subject.memory().shard != nullptr) {
    std::memset(subject.memory().shard, 0, shard_elements * sizeof(T));
  }
}

template <class T>
void check(const contender& subject, const workload& load, const std::byte* result) {
  const auto [rank, size] = subject.place();
  const auto shard_elements =
      static_cast<std::size_t>(load.elements) / static_cast<std::size_t>(size);
  const T* const values = reinterpret_cast<const T*>(result);
  const std::string who = "rank " + std::to_string(rank) + ", " + std::string(name_of(load.what));
  if (load.what == operation::reduce_scatter) {
    expect(std::span(values, shard_elements), sum_of_contributions(size, rank), who);
    return;
  }
  for (int shard = 0; shard < size; ++shard) {
    expect(std::span(values + static_cast<std::size_t>(shard) * shard_elements, shard_elements),
           contribution(shard, shard), who + ", shard " + std::to_string(shard));
  }
}

void verify_all_reduce(contender& subject, const workload& load) {
  const auto [rank, size] = subject.place();
  const auto count = static_cast<std::size_t>(load.elements);
  std::fill_n(reinterpret_cast<double*>(subject.memory().full), count, contribution(rank, 0));
  subject.run(load);
  expect(std::span(reinterpret_cast<const double*>(subject.result(load)), count),
         sum_of_contributions(size, 0), "rank " + std::to_string(rank) + ", all_reduce");
}

}  // namespace

std::string_view name_of(operation what) {
  constexpr std::string_view names[] = {"reduce_scatter", "all_gather", "all_reduce"};
  return names[static_cast<std::size_t>(what)];
}

std::string_view name_of(element type) {
  return type == element::fp32 ? "fp32" : "bf16";
}

std::string_view name_of(team_kind kind) {
  constexpr std::string_view names[] = {"threads", "processes", "mpi"};
  return names[static_cast<std::size_t>(kind)];
}

const std::array<contender_facts, contender_count>& all_contenders() {
  return table;
}

const contender_facts& facts_of(contender_id id) {
  return table[static_cast<std::size_t>(id)];
}

const std::byte* contender::result(const workload& load) const {
  return load.what == operation::reduce_scatter ? memory_.shard : memory_.full;
}

void verify(contender& subject, const workload& load) {
  if (load.what == operation::all_reduce) return verify_all_reduce(subject, load);
  with_element_type(load.type, [&]<class T>(std::type_identity<T>) {
    fill<T>(subject, load);
    subject.run(load);
    if (const std::byte* const result = subject.result(load)) check<T>(subject, load, result);
  });
}

}  // namespace collectives_bench
