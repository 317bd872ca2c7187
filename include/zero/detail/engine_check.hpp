// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <zero/communicator.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>
#include <zero/stage.hpp>

namespace zero::detail {

template <class...>
inline constexpr bool never = false;

template <class C, class T>
concept CanCarry = CanReduceScatter<C, T> && CanAllGather<C, T>;

/// Masters travel only at stage 0, when they are initialised.
template <class C, class P>
concept CanCarryMaster = !has_master<P> || CanAllGather<C, master_type<P>>;

/// True for zero::hybrid and for decorators around it; a communicator that is chosen at run time
/// is asked when the engine is made.
template <class C>
inline constexpr bool always_has_replicas = false;
template <HasReplicas C>
requires requires {
  typename C::sharded_group;
}
inline constexpr bool always_has_replicas<C> = true;

template <class S, class C>
concept MisplacedReplicas = always_has_replicas<C> && !S::partitions_optimizer_state;

/// The ladder: the first thing that is wrong with the template arguments gets one readable
/// sentence, and nothing else of the engine is compiled.
template <class S, class P, class C, class O>
constexpr bool check_engine_arguments() {
  if constexpr (!Stage<S>) {
    static_assert(never<S>,
                  "zero::engine: the first argument is not a Stage (use zero::stage0 to stage3, "
                  "stage3_keep_gathered, or a struct with the flags of zero::Stage)");
  } else if constexpr (!Precision<P>) {
    static_assert(never<P>,
                  "zero::engine: the second argument is not a Precision (use zero::fp32, "
                  "bf16_mixed, fp16_mixed, bf16_mixed_fp32_gradients, bf16_remainder)");
  } else if constexpr (!HasTopology<C>) {
    static_assert(never<C>,
                  "zero::engine: the third argument is not a Communicator: it lacks rank(), "
                  "size(), memory_space, queue, work, sums, abort(), claim() or unclaim() (use "
                  "zero::threads_communicator, or see zero::HasTopology)");
  } else if constexpr (MisplacedReplicas<S, C>) {
    static_assert(never<S>,
                  "zero::engine: zero::hybrid shards inside groups, and stage0 shards nothing (use "
                  "stage1 to stage3, or give stage0 the communicator without hybrid)");
  } else if constexpr (!CanReduceScatter<C, typename P::gradient_type>) {
    static_assert(never<C>,
                  "zero::engine: the communicator cannot reduce-scatter the precision's "
                  "gradient_type (it needs work reduce_scatter(range<const T, partial>, "
                  "range<T, shard>, reduce_options, queue))");
  } else if constexpr (!CanAllGather<C, typename P::parameter_type> ||
                       !CanAllGather<C, typename P::gradient_type> || !CanCarryMaster<C, P>) {
    static_assert(never<C>,
                  "zero::engine: the communicator cannot all-gather the precision's element types "
                  "(it needs work all_gather(range<const T, shard>, range<T, full>, queue))");
  } else if constexpr (!CanAllGather<C, std::uint64_t>) {
    static_assert(never<C>,
                  "zero::engine: the communicator cannot all-gather std::uint64_t, which the "
                  "comparison of the ranks at construction needs");
  } else if constexpr (!CanAllReduce<C>) {
    static_assert(never<C>,
                  "zero::engine: the communicator cannot all-reduce doubles (it needs "
                  "work all_reduce(range<double, full>, queue))");
  } else if constexpr (!CanBroadcast<C, float> || !CanBroadcast<C, typename P::parameter_type>) {
    static_assert(never<C>,
                  "zero::engine: the communicator cannot broadcast (it needs "
                  "work broadcast(range<T, full>, int root, queue))");
  } else if constexpr (!Optimizer<O>) {
    static_assert(never<O>,
                  "zero::engine: the fourth argument is not an Optimizer (use zero::adamw, adam, "
                  "sgd, lion; optimizers that need a whole tensor, like LAMB or Muon, do not fit: "
                  "see zero::Optimizer)");
  } else {
    return true;
  }
  return false;
}

}  // namespace zero::detail
