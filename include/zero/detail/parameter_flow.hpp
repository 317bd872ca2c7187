// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <zero/detail/engine_state.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// Brings parameters to where the user reads them, and takes them away again.
///
/// Partitioned parameters (stage 3) are gathered into slots when a unit is opened and dropped
/// after its last use in the traversal; replicated ones (stages 0 to 2) only have to wait for the
/// gather that follows an update.
template <class State>
class parameter_flow {
 public:
  using queue = typename State::queue;
  using parameter_type = typename State::parameter_type;

  explicit parameter_flow(State& state) noexcept : state_(state) {}

  /// Makes the unit readable for what follows in `q`.
  /// Throws: usage_error when the unit's place is taken by one that is still open.
  void require(unit_id unit, queue q) {
    if (state_.plan.gathers_into_slots() && !state_.progress(unit).is_gathered) {
      const std::optional<unit_id> other = blocking_unit(unit);
      if (other) {
        throw usage_error("zero::engine: unit \"" + state_.name(unit) +
                          "\" was opened while \"" + state_.name(*other) +
                          "\" is still open; at most two neighbouring units can be open at once");
      }
      start_gather(unit, q);
    }
    wait(unit, q);
  }

  /// Starts the gather of a unit that is due next, if its place is free.
  void prefetch(unit_id unit, queue q) {
    if (!state_.plan.gathers_into_slots() || state_.progress(unit).is_gathered) return;
    if (!blocking_unit(unit)) start_gather(unit, q);
  }

  /// Gives up the gathered copy of a unit.
  void release(unit_id unit, queue q) {
    if (!state_.plan.gathers_into_slots() || !state_.progress(unit).is_gathered) return;
    wait(unit, q);
    state_.progress(unit).is_gathered = false;
    const unit_plan& plan = state_.plan.units[unit.value];
    if (plan.shares_parameter_region) region_.vacate(plan);
  }

  void release_all(queue q) {
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) release(unit_id{u}, q);
  }

  /// After an update: every rank receives the parameters that the other ranks have updated.
  void distribute_updates(queue q) {
    using S = typename State::stage;
    if constexpr (S::partitions_optimizer_state && !S::partitions_parameters) {
      if (state_.ranks() == 1) return;
      for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
        auto& store = state_.at(unit_id{u});
        const std::uint64_t own = store.trainable.owned_by(state_.rank()).begin;
        state_.progress(unit_id{u}).gathers[0] =
            gather(store.trainable, store.trainable_padding, store.parameters.at(own),
                   store.parameters.data, q);
      }
    }
  }

  /// Orders what follows in `q` after everything that is on its way to this unit.
  void wait(unit_id unit, queue q) {
    for (auto& work : state_.progress(unit).gathers) work.wait(q);
  }
  void wait_all(queue q) {
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) wait(unit_id{u}, q);
  }

  /// All-gathers one range: own shard in, whole range out. Also used for initial values.
  template <class T>
  auto gather(const partition& cut, std::uint64_t padding, const T* own, T* whole, queue q) ->
      typename State::work {
    using space = typename State::space;
    if (cut.padded_elements() == 0) return {};
    return state_.wire.all_gather(range<const T, shard, space>(own, cut.shard_elements),
                                  range<T, full, space>(whole, cut.padded_elements(), padding), q);
  }

 private:
  std::optional<unit_id> blocking_unit(unit_id unit) const noexcept {
    const unit_plan& plan = state_.plan.units[unit.value];
    if (!plan.shares_parameter_region) return std::nullopt;
    return region_.occupant(plan);
  }

  void start_gather(unit_id unit, queue q) {
    const unit_plan& plan = state_.plan.units[unit.value];
    if (plan.shares_parameter_region) region_.occupy(plan, unit);
    auto& store = state_.at(unit);
    auto& progress = state_.progress(unit);
    progress.is_gathered = true;
    progress.gathers[0] = gather(store.trainable, store.trainable_padding,
                                 store.parameters.data, store.gathered.data, q);
    progress.gathers[1] = gather(store.frozen, store.frozen_padding,
                                 store.frozen_parameters.data, store.gathered_frozen.data, q);
  }

  State& state_;
  shared_region region_;
};

}  // namespace zero::detail
