// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <zero/range.hpp>

namespace zero {

/// What a backend promises about the order of a sum over ranks.
enum class summation {
  /// The balanced binary tree over ranks in rank order, e.g. N = 5: ((0+1)+(2+3))+4, in the
  /// compute type, rounded once at the end. Bitwise promises of the library hold for it.
  rank_tree,
  /// Any order (NCCL).
  unspecified,
};

/// The operations that move elements, for counters, logs and messages.
enum class collective : std::uint8_t { reduce_scatter, all_gather, all_reduce, broadcast };

/// "reduce_scatter", "all_gather", ...
constexpr std::string_view name_of(collective operation) noexcept {
  constexpr std::string_view names[] = {"reduce_scatter", "all_gather", "all_reduce", "broadcast"};
  return names[static_cast<std::size_t>(operation)];
}

/// Arguments of a reduce-scatter.
struct reduce_options {
  /// The fold multiplies the sum by this factor before it rounds it to the output type: 1/N for
  /// fp16, whose sum can overflow where the mean fits; 1 otherwise.
  float scale = 1.0F;
};

/// The queue of every host communicator: calls are ordered by the calling thread, so it is empty.
struct host_queue {};

/// A collective that was started: movable, of fixed size.
///
/// `wait(queue)` orders what follows in that queue after the result (host: it blocks) and may
/// throw; waiting twice is harmless; after it input and output belong to the caller again. A
/// handle that is dropped waits until the operation's deadline and never throws. It does not
/// outlive its communicator. A default-constructed handle is complete.
template <class W, class Queue>
concept Work = std::movable<W> && std::default_initializable<W> && !std::copyable<W> &&
               requires(W & work, Queue queue) {
  work.wait(queue);
};

/// Rank, size, memory space, queue, and the promise about sums.
///
/// `claim()` returns false when an engine already uses the communicator, `unclaim()` gives it
/// back: two engines that interleave their collectives on one communicator cannot be told apart.
template <class C>
concept HasTopology = requires(const C& c, C& mutable_c, std::string_view reason) {
  typename C::memory_space;
  typename C::queue;
  typename C::work;
  requires Work<typename C::work, typename C::queue>;
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
  { C::sums } -> std::convertible_to<summation>;
  { C::backend_name() } -> std::convertible_to<std::string_view>;
  { mutable_c.abort(reason) }
  noexcept;
  { mutable_c.claim() }
  noexcept->std::same_as<bool>;
  { mutable_c.unclaim() }
  noexcept;
};

/// `reduce_scatter(in, out, options, queue)`: rank r receives the sum over ranks of shard r.
///
/// `in` is full (size = N x out.size()), `out` holds T, or float where the backend can deliver the
/// unrounded sum. In place: `out` is shard `rank` of `in`; any other overlap is an error.
/// Collective: all ranks, same order, same counts. Moves: the elements of `in`.
template <class C, class T, class U = T>
concept CanReduceScatter = HasTopology<C> &&
    requires(C& c, range<const T, partial, typename C::memory_space> in,
             range<U, shard, typename C::memory_space> out, reduce_options options,
             typename C::queue queue) {
  { c.reduce_scatter(in, out, options, queue) } -> std::same_as<typename C::work>;
};

/// `all_gather(in, out, queue)`: every rank receives all shards, in rank order.
///
/// In place: `in` is shard `rank` of `out`; any other overlap is an error.
/// Collective: all ranks, same order, same counts. Moves: the elements of `out`.
template <class C, class T>
concept CanAllGather = HasTopology<C> &&
    requires(C& c, range<const T, shard, typename C::memory_space> in,
             range<T, full, typename C::memory_space> out, typename C::queue queue) {
  { c.all_gather(in, out, queue) } -> std::same_as<typename C::work>;
};

/// `all_reduce(values, queue)`: a few doubles are replaced by their sums over ranks, summed in the
/// order that `sums` promises. Collective: all ranks, same order, same counts.
template <class C>
concept CanAllReduce = HasTopology<C> &&
    requires(C& c, range<double, full, typename C::memory_space> values, typename C::queue queue) {
  { c.all_reduce(values, queue) } -> std::same_as<typename C::work>;
};

/// `broadcast(values, root, queue)`: every rank receives rank `root`'s values.
/// Collective: all ranks, same order, same counts, same root.
template <class C, class T>
concept CanBroadcast = HasTopology<C> &&
    requires(C& c, range<T, full, typename C::memory_space> values, int root,
             typename C::queue queue) {
  { c.broadcast(values, root, queue) } -> std::same_as<typename C::work>;
};

/// `split(color)`: a communicator among the ranks that gave the same color, in rank order.
/// Collective: all ranks.
template <class C>
concept CanSplit = HasTopology<C> && requires(C& c, int color) {
  { c.split(color) } -> HasTopology;
};

/// A communicator over one of several groups that hold the same shards (`zero::hybrid`).
///
/// rank() and size() are those inside the group; gathers stay there, reduce-scatters also cross
/// the replicas, all_reduce and broadcast span all ranks of all groups (a broadcast's root is a
/// rank of group 0). `replicas()` is the number of groups, `replica()` this rank's group.
/// `rounds_before_crossing()` says whether partial sums cross as element type or as compute type;
/// for the latter `lend_scratch` gives it room for one shard, until it is given an empty span.
template <class C>
concept HasReplicas = HasTopology<C> &&
    requires(const C& c, C& mutable_c, std::span<std::byte> scratch) {
  { c.replicas() } -> std::same_as<int>;
  { c.replica() } -> std::same_as<int>;
  { c.rounds_before_crossing() } -> std::same_as<bool>;
  { mutable_c.lend_scratch(scratch) }
  noexcept;
};

/// Everything an engine needs, for element type T on the wire.
template <class C, class T = float>
concept Communicator = HasTopology<C> && CanReduceScatter<C, T> && CanAllGather<C, T> &&
    CanAllGather<C, std::uint64_t> && CanAllReduce<C> && CanBroadcast<C, T>;

/// The shape of the summation tree: the number of leading ranks that form the left subtree of a
/// tree over `count` ranks (the largest power of two below `count`). N = 5: 4, N = 4: 2, N = 3: 2.
constexpr int left_subtree(int count) noexcept {
  int left = 1;
  while (left * 2 < count) left *= 2;
  return left;
}
static_assert(left_subtree(2) == 1 && left_subtree(3) == 2 && left_subtree(5) == 4);

}  // namespace zero
