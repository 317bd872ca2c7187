// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <zero/communicator.hpp>
#include <zero/detail/completed_work.hpp>
#include <zero/detail/decorator.hpp>
#include <zero/error.hpp>
#include <zero/kernels/cast.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/partition.hpp>
#include <zero/range.hpp>

namespace zero {

/// Settings of `hybrid`.
struct hybrid_options {
  /// Rounds the sums of a group to the element type before they cross the replicas: half the bytes
  /// for 16-bit gradients, but two roundings. Otherwise they cross in the compute type.
  bool round_before_crossing = false;
};

/// Shards inside groups of S ranks and replicates over the R = N / S groups.
///
/// Ranks g S to (g + 1) S - 1 are group g, as launchers number the ranks of a node. rank() and
/// size() are those inside the group, so an engine holds the bytes of its stage with N replaced by
/// S, and its gathers stay inside the group.
/// A reduce-scatter sums in the tree over the group, then in the tree over the groups, and rounds
/// once; that is the sum of the flat run, bit for bit, for exact sums and when S and R are powers
/// of two. all_reduce and broadcast span all N ranks; the root is a rank of group 0.
/// Moves across replicas: a reduce-scatter and an all-gather of the shard, 2 Psi/S per step.
/// Throws: usage_error from the constructor unless S divides N.
template <CanSplit C>
class hybrid {
 public:
  using memory_space = typename C::memory_space;
  using queue = typename C::queue;
  using work = detail::completed_work;
  using sharded_group = detail::split_of<C>;
  static_assert(std::is_same_v<memory_space, host_space>,
                "zero::hybrid: a host communicator is needed");

  static constexpr summation sums = C::sums;
  static constexpr std::string_view backend_name() noexcept { return C::backend_name(); }

  /// Borrows `world`. Collective: all ranks, with the same shard_size and options.
  hybrid(C& world, int shard_size, hybrid_options options = {})
      : hybrid(world, nullptr, shard_size, options) {}
  explicit hybrid(std::unique_ptr<C> world, int shard_size, hybrid_options options = {})
      : hybrid(*world, std::move(world), shard_size, options) {}

  hybrid(const hybrid&) = delete;
  hybrid& operator=(const hybrid&) = delete;

  int rank() const noexcept { return group_->rank(); }
  int size() const noexcept { return group_->size(); }
  int replicas() const noexcept { return across_->size(); }
  int replica() const noexcept { return across_->rank(); }
  bool rounds_before_crossing() const noexcept { return options_.round_before_crossing; }

  /// Room for one shard in the compute type, which sums that cross unrounded need; an empty span
  /// takes it back. The engine lends a part of its arena.
  void lend_scratch(std::span<std::byte> scratch) noexcept { scratch_ = scratch; }

  /// The ranks that hold the shards of one copy, and the ranks that hold the same shard.
  sharded_group& group() noexcept { return *group_; }
  sharded_group& across() noexcept { return *across_; }

  void abort(std::string_view reason) noexcept {
    world_->abort(reason);
    group_->abort(reason);
    across_->abort(reason);
  }
  bool claim() noexcept { return world_->claim(); }
  void unclaim() noexcept { world_->unclaim(); }

  /// Rank r of each group receives the sum over all N ranks of shard r, times options.scale.
  ///
  /// Throws: usage_error when the shard cannot be divided among the replicas, or when sums cross
  /// unrounded and no scratch, or too little, was lent.
  template <class T, class U>
  requires CanReduceScatter<sharded_group, T, U> work reduce_scatter(range<const T, partial> in,
                                                                     range<U, shard> out,
                                                                     reduce_options options = {},
                                                                     queue on = {}) {
    using compute_type = typename element_traits<T>::compute_type;
    return passing_failures_on([&] {
      if (replicas() == 1) {
        group_->reduce_scatter(in, out, options, on).wait(on);
      } else if constexpr (std::same_as<U, compute_type>) {
        group_->reduce_scatter(in, out, {}, on).wait(on);
        cross(out.data(), out, options, on);
      } else if (options_.round_before_crossing) {
        group_->reduce_scatter(in, out, {}, on).wait(on);
        cross(out.data(), out, options, on);
      } else {
        const range<compute_type, shard> unrounded(scratch<compute_type>(out.size()), out.size());
        group_->reduce_scatter(in, unrounded, {}, on).wait(on);
        cross(unrounded.data(), out, options, on);
      }
    });
  }

  /// Every rank receives the shards of its group.
  template <class T>
  requires CanAllGather<sharded_group, T> work all_gather(range<const T, shard> in,
                                                          range<T, full> out, queue on = {}) {
    return passing_failures_on([&] { group_->all_gather(in, out, on).wait(on); });
  }

  /// Sums over all N ranks.
  work all_reduce(range<double, full> values, queue on = {}) requires CanAllReduce<C> {
    return passing_failures_on([&] { world_->all_reduce(values, on).wait(on); });
  }

  /// Every rank of every group receives the values of rank `root` of group 0.
  template <class T>
  requires CanBroadcast<C, T> work broadcast(range<T, full> values, int root, queue on = {}) {
    if (root < 0 || root >= size()) {
      throw usage_error("zero::hybrid, broadcast: root " + std::to_string(root) +
                        " is not a rank of the first group, which has " + std::to_string(size()));
    }
    return passing_failures_on([&] { world_->broadcast(values, root, on).wait(on); });
  }

 private:
  hybrid(C& world, std::unique_ptr<C> owned, int shard_size, hybrid_options options)
      : owned_(std::move(owned)), world_(&world), options_(options) {
    if (shard_size < 1 || world.size() % shard_size != 0) {
      throw usage_error("zero::hybrid: shard_size " + std::to_string(shard_size) +
                        " does not divide the " + std::to_string(world.size()) + " ranks");
    }
    group_ = detail::split_to_heap(world, world.rank() / shard_size);
    across_ = detail::split_to_heap(world, world.rank() % shard_size);
  }

  /// A rank that fails in a group ends the whole world: the other groups would wait for it.
  template <class Function>
  work passing_failures_on(Function&& function) {
    try {
      function();
    } catch (const usage_error&) {
      throw;  // found before any peer was involved
    } catch (const std::exception& failure) {
      abort(failure.what());
      throw;
    }
    return {};
  }

  template <class V>
  V* scratch(std::uint64_t elements) const {
    if (scratch_.size() < elements * sizeof(V)) {
      throw usage_error("zero::hybrid: sums of " + std::to_string(elements) + " elements need " +
                        std::to_string(elements * sizeof(V)) +
                        " bytes of scratch to cross unrounded; lend_scratch() was given " +
                        std::to_string(scratch_.size()));
    }
    return reinterpret_cast<V*>(scratch_.data());
  }

  /// Sums the groups' sums, each replica a part of the shard, and gathers the rounded parts.
  template <class V, class U>
  void cross(V* group_sums, range<U, shard> out, reduce_options options, queue on) {
    const partition parts = make_partition(out.size(), replicas(), 1);
    if (parts.padded_elements() != out.size()) {
      throw usage_error("zero::hybrid: a shard of " + std::to_string(out.size()) +
                        " elements cannot be divided among " + std::to_string(replicas()) +
                        " replicas");
    }
    const interval own = parts.owned_by(replica());
    const range<V, shard> part(group_sums + own.begin, own.size());
    across_->reduce_scatter(range<const V, partial>(group_sums, out.size()), part, options, on)
        .wait(on);
    U* const rounded = out.data() + own.begin;
    if constexpr (!std::is_same_v<V, U>) {
      kernels::convert(host_space{}, static_cast<const V*>(part.data()), rounded, own.size());
    }
    across_
        ->all_gather(range<const U, shard>(rounded, own.size()),
                     range<U, full>(out.data(), out.size()), on)
        .wait(on);
  }

  std::unique_ptr<C> owned_;
  C* world_;
  hybrid_options options_;
  std::unique_ptr<sharded_group> group_;
  std::unique_ptr<sharded_group> across_;
  std::span<std::byte> scratch_;
};

template <class C>
hybrid(C&, int) -> hybrid<C>;
template <class C>
hybrid(C&, int, hybrid_options) -> hybrid<C>;

}  // namespace zero
