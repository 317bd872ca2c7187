// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <zero/backends/gloo/options.hpp>
#include <zero/backends/gloo/store_adapter.hpp>
#include <zero/backends/gloo/transport.hpp>
#include <zero/communicator.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

/// One rank of a world of processes, on one or several hosts, connected by Gloo over TCP.
///
/// Gloo moves the bytes, the shared fold kernel sums. Made after any fork, because Gloo has a
/// thread per device. Gloo trusts its network: whoever reaches its ports can send it anything.
///
/// A rank that dies ends the others within about 50 ms; one that hangs, at the deadline. The
/// destructor waits until the peers have what this rank sent, 5 s at most; it disturbs nobody who
/// does not need this rank any more.
///
/// Collective: every operation but rank, size, abort, claim and unclaim; all ranks, same order,
/// one call at a time per rank. The calls block.
///
/// Moves: (N-1)/N of the full range per rank for reduce_scatter and all_gather; the whole range
/// from the root to every other rank for broadcast.
///
/// Throws: aborted_error, mismatch_error (with checked_order), timeout_error; usage_error for wrong
/// ranges, before peers are involved.
template <gloo_algorithm Algorithm>
class basic_gloo_communicator
    : public detail::transport_communicator<detail::gloo_transport<Algorithm>> {
  using base = detail::transport_communicator<detail::gloo_transport<Algorithm>>;

 public:
  static constexpr summation sums =
      Algorithm == gloo_algorithm::direct ? summation::rank_tree : summation::unspecified;

  /// Meets the other ranks in `store`.
  ///
  /// split() meets there again: a store that is not copied like any_store and memory_store has to
  /// outlive the communicator and its parts.
  /// Collective: all ranks, in the same order where several communicators use one store.
  /// Throws: usage_error for a wrong rank or option; timeout_error that names the ranks that did
  /// not come before setup_timeout; mismatch_error where sizes, options or versions differ;
  /// rendezvous_error where there is no such interface, or hosts would be given loopback addresses;
  /// communicator_error with Gloo's text where ranks cannot be connected.
  template <Store S>
  basic_gloo_communicator(S& store, int rank, int size, const gloo_options& options = {})
      : base(std::make_unique<detail::gloo_transport<Algorithm>>(shared(store), rank, size,
                                                                 options)) {}

  /// A communicator among the ranks that gave the same color, in rank order, with these options.
  ///
  /// It shares this one's network device. An abort of this one reaches it, not the other way round.
  basic_gloo_communicator split(int color) {
    return this->template split_into<basic_gloo_communicator>(color);
  }

  /// Memory for what arrives and is not summed yet: (N-1) x depth x segment_bytes for direct
  /// exchange, 3 x depth x segment_bytes for the ring, and three headers per rank.
  /// Units: bytes.
  std::uint64_t scratch_bytes() noexcept { return this->transport().scratch_bytes(); }

 private:
  /// Copies of a store share what it holds.
  template <Store S>
  static any_store shared(S& store) {
    if constexpr (std::copy_constructible<S>) {
      return any_store::make<S>(store);
    } else {
      return any_store::make<detail::borrowed_store<S>>(store);
    }
  }

  friend base;
  using base::base;
};

/// Direct exchange: the bits of every other rank_tree backend.
using gloo_communicator = basic_gloo_communicator<gloo_algorithm::direct>;

/// The ring: for many ranks, where all of them sending at once would swamp the network's switches.
/// Its sums have an order of their own, so no promise of equal bits holds with it.
using gloo_ring_communicator = basic_gloo_communicator<gloo_algorithm::ring>;

static_assert(Communicator<gloo_communicator, float> && CanSplit<gloo_communicator>);
static_assert(Communicator<gloo_communicator, bfloat16>);
static_assert(CanReduceScatter<gloo_communicator, bfloat16, float>);
static_assert(CanAllGather<gloo_communicator, std::uint16_t>);
static_assert(Communicator<gloo_ring_communicator> && CanSplit<gloo_ring_communicator>);

}  // namespace zero
