// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <zero/backends/gloo/options.hpp>
#include <zero/backends/gloo/transport.hpp>
#include <zero/communicator.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

/// One rank of a world of processes, on one or several hosts, connected by Gloo over TCP.
///
/// Gloo moves the bytes; the exchange is direct and the shared fold kernel sums, so results have
/// the bits of every other rank_tree backend. Made after any fork, because Gloo has a thread per
/// device. Gloo trusts its network: whoever reaches its ports can send it anything. A rank that
/// dies ends the others within about 50 ms; one that hangs, at the deadline. The destructor waits
/// until the peers have what this rank sent, 5 s at most; it disturbs nobody who does not need this
/// rank any more. Collective: every operation but rank, size, abort, claim and unclaim; all ranks,
/// same order, one call at a time per rank. The calls block. Moves: (N-1)/N of the full range per
/// rank for reduce_scatter and all_gather; the whole range from the root to every other rank for
/// broadcast. Throws: aborted_error, mismatch_error (with checked_order), timeout_error;
/// usage_error for wrong ranges, before peers are involved.
class gloo_communicator : public detail::transport_communicator<detail::gloo_transport> {
 public:
  /// Meets the other ranks in `store`, which has to outlive the communicator and its parts.
  ///
  /// Collective: all ranks, in the same order where several communicators use one store.
  /// Throws: usage_error for a wrong rank or option; timeout_error that names the ranks that did
  /// not come before setup_timeout; mismatch_error where sizes, options or versions differ;
  /// communicator_error that carries Gloo's text when there is no such interface or no connection.
  template <Store S>
  gloo_communicator(S& store, int rank, int size, const gloo_options& options = {})
      : transport_communicator(std::make_unique<detail::gloo_transport>(
            any_store::make<prefixed_store<S>>(store, "zero"), rank, size, options)) {}

  /// A communicator among the ranks that gave the same color, in rank order, with these options.
  ///
  /// It shares this one's network device. An abort of this one reaches it, not the other way round.
  gloo_communicator split(int color) { return split_into<gloo_communicator>(color); }

  /// Memory for what arrives and is not summed yet: (N-1) x depth x segment_bytes, and headers.
  /// Units: bytes.
  std::uint64_t scratch_bytes() noexcept { return transport().scratch_bytes(); }

 private:
  friend class detail::transport_communicator<detail::gloo_transport>;
  using transport_communicator::transport_communicator;
};

static_assert(Communicator<gloo_communicator, float> && CanSplit<gloo_communicator>);
static_assert(Communicator<gloo_communicator, bfloat16>);
static_assert(CanReduceScatter<gloo_communicator, bfloat16, float>);
static_assert(CanAllGather<gloo_communicator, std::uint16_t>);

}  // namespace zero
