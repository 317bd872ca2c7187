// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <zero/backends/shm/layout.hpp>
#include <zero/backends/shm/memory.hpp>
#include <zero/backends/shm/setup.hpp>
#include <zero/backends/shm/transport.hpp>
#include <zero/communicator.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

/// Settings of a world of processes that share memory.
struct shm_options {
  /// How long a rank waits for its peers in one collective before it throws timeout_error.
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);
  /// How long the constructor waits for all ranks.
  std::chrono::nanoseconds setup_timeout = std::chrono::seconds(120);
  /// What a rank copies at a time where ranges lie in private memory; equal on all ranks. A rank
  /// holds two chunks in shared memory. Rounded up to cache lines. With 1 MiB of second-level cache
  /// per core, 256 KiB took a third more CPU time in an all-gather of 64 MB over 2 ranks, and
  /// 2 MiB a quarter more in a reduce-scatter over 4.
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20U;
};

/// One rank of a world whose ranks are processes of one host (or threads, each with its own).
///
/// Ranks share memory that has no name: nothing is left behind, however they end. A range in memory
/// from `shared_memory` is read by the peers where it lies; any other goes through windows, a chunk
/// at a time. Waiting ranks sleep, and look every 50 ms whether their peers live: a peer that dies
/// ends the operation of all others, and every later one, with an aborted_error that names it. The
/// order of collectives is always checked: ranks that disagree about operation, type, count, root
/// or scale all get a mismatch_error before any result is written.
/// Ranks are of one program, user and pid namespace: shm_host_is_shared tells. The memory of a rank
/// that is killed is given back when the last peer has gone.
/// Collective: every operation but rank, size, abort, claim and unclaim; all ranks, same order,
/// one call at a time per rank. The calls block; they allocate nothing unless they throw, but for
/// split and shared_memory.
/// Throws: aborted_error, mismatch_error, timeout_error; usage_error for wrong ranges, before
/// peers are involved, and in a child that was forked after the communicator was made.
class shm_communicator : public detail::transport_communicator<detail::shm_transport> {
  using base = detail::transport_communicator<detail::shm_transport>;

 public:
  /// Collective: all ranks, with one store; they may use it for the next world when this returns.
  /// Throws: usage_error for a rank, size, timeout or chunk that cannot be; mismatch_error when
  /// ranks were given different sizes or chunks; timeout_error that names a rank which did not
  /// come; communicator_error that says why a rank cannot share memory with rank 0; what the store
  /// throws.
  template <Store S>
  shm_communicator(S& store, int rank, int size, shm_options options = {})
      : base(join(store, rank, size, options)) {}

  /// A communicator among the ranks that gave the same color, in rank order.
  ///
  /// It keeps this one's timeout. What ends this communicator ends it too, not the other way round.
  shm_communicator split(int color) { return split_into<shm_communicator>(color); }

  /// Memory of this rank that collectives read without copying it first.
  ///
  /// The same number of bytes on all ranks. The pages are taken at once and given back when the
  /// handle goes; the handles of other ranks are not concerned.
  /// Throws: zero::error when a rank gets no memory, which ends the communicator for all.
  shm_memory shared_memory(std::uint64_t bytes) {
    std::shared_ptr<detail::shm_block> block;
    detail::collective_call call;
    call.operation = "shared_memory";
    call.element = call.output_element = "byte";
    call.count = bytes;
    run(call, [&](const detail::transport_operation& operation) {
      block = transport().make_block(bytes, operation);
    });
    return {std::move(block), rank()};
  }

 private:
  friend base;
  explicit shm_communicator(std::shared_ptr<state> part) noexcept : base(std::move(part)) {}

  template <Store S>
  static std::unique_ptr<detail::shm_transport> join(S& store, int rank, int size,
                                                     const shm_options& options) {
    const std::string who = "zero::shm_communicator: ";
    if (size < 1 || rank < 0 || rank >= size) {
      throw usage_error(who + "rank " + std::to_string(rank) + " of a world of " +
                        std::to_string(size) + " does not exist");
    }
    if (options.timeout <= std::chrono::nanoseconds::zero() ||
        options.setup_timeout <= std::chrono::nanoseconds::zero()) {
      throw usage_error(who + "timeout of " + std::to_string(options.timeout.count()) +
                        " ns and setup_timeout of " +
                        std::to_string(options.setup_timeout.count()) +
                        " ns are not both positive");
    }
    constexpr std::uint64_t line = detail::segment_layout::line_bytes;
    const std::uint64_t least = line * static_cast<std::uint64_t>(size);
    const std::uint64_t most = std::uint64_t{1} << 40U;
    if (options.chunk_bytes < least || options.chunk_bytes > most) {
      throw usage_error(who + "chunk_bytes " + std::to_string(options.chunk_bytes) +
                        " is not between 64 x size = " + std::to_string(least) + " and " +
                        std::to_string(most));
    }
    // A deadline has to be representable; nobody waits for ten years.
    const std::chrono::nanoseconds longest = std::chrono::hours(24 * 3650);
    const detail::segment_layout layout{
        static_cast<std::uint64_t>(size),
        detail::segment_layout::round_up(options.chunk_bytes, line)};
    return detail::join_shm_world(store, layout, rank, std::min(options.timeout, longest),
                                  std::min(options.setup_timeout, longest));
  }
};

static_assert(Communicator<shm_communicator, float> && CanSplit<shm_communicator>);
static_assert(Communicator<shm_communicator, bfloat16>);
static_assert(CanReduceScatter<shm_communicator, bfloat16, float>);
static_assert(CanAllGather<shm_communicator, std::uint16_t>);

}  // namespace zero
