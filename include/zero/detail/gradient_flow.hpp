// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <zero/detail/engine_state.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// Takes gradients from the user and reduces them over the ranks.
///
/// A unit's window is where the user writes in one backward traversal: the gradient state itself
/// where gradients are replicated (stages 0 and 1), a slot where they are partitioned. When the
/// unit's last use ends, what nobody wrote is zero-filled and the window is reduced.
template <class State>
class gradient_flow {
 public:
  using queue = typename State::queue;
  using space = typename State::space;
  using gradient_type = typename State::gradient_type;
  using stage = typename State::stage;

  explicit gradient_flow(State& state) noexcept : state_(state) {}

  /// Opens the window of a unit for this micro-batch.
  /// Throws: usage_error when its place is taken by a window that is still open.
  void open_window(unit_id unit, queue q) {
    auto& progress = state_.progress(unit);
    if (progress.window_is_open || progress.is_reduced || !state_.has_trainable(unit)) return;
    claim_place(unit, q);
    // The previous reduction may still read the window, or write into it.
    progress.reduction.wait(q);
    if (pending_sum_ == unit) finish_pending_sum(q);
    progress.window_is_open = true;
    progress.ready = 0;
    for (const tensor_id tensor : state_.layout.tensors(unit)) {
      state_.tensors[tensor.value].is_written = false;
      state_.tensors[tensor.value].is_ready = false;
    }
  }

  /// Where the user adds the gradient of a tensor; zero-filled at the first access.
  gradient_type* gradient(tensor_id tensor, bool overwrite, queue q) {
    const tensor_id owner = state_.layout.owner(tensor);
    const tensor_info info = state_.layout.info(owner);
    require_writable(tensor, info);
    gradient_type* const values = state_.at(info.unit).window.at(state_.layout.offset(owner));
    bool& is_written = state_.tensors[owner.value].is_written;
    if (!is_written && !overwrite) state_.executor.fill_zero(values, info.elements, q);
    is_written = true;
    return values;
  }
  bool is_written(tensor_id tensor) const {
    return state_.tensors[state_.layout.owner(tensor).value].is_written;
  }

  /// Notes that a tensor's gradient is complete; true when all of its unit's are.
  bool mark_ready(tensor_id tensor) {
    const tensor_id owner = state_.layout.owner(tensor);
    const tensor_info info = state_.layout.info(owner);
    require_writable(tensor, info);
    auto& progress = state_.progress(info.unit);
    if (state_.tensors[owner.value].is_ready) return false;
    state_.tensors[owner.value].is_ready = true;
    return ++progress.ready == progress.trainable_tensors;
  }

  /// Ends the window of a unit: fills what nobody wrote and starts the reduction.
  /// Moves: the unit's trainable elements, in the micro-batches that reduce.
  void reduce(unit_id unit, queue q) {
    auto& progress = state_.progress(unit);
    if (!progress.window_is_open || progress.is_reduced) return;
    fill_unwritten(unit, q);
    progress.window_is_open = false;
    progress.is_reduced = true;
    const bool is_last = state_.micro_batch + 1 == state_.micro_batches;
    if (state_.plan.request.mode == accumulation::reduce_last) {
      add_window_to_sums(unit, q);
      if (!is_last) return;
      round_sums_to_window(unit, q);
    }
    start_reduction(unit, q);
  }

  /// The sums of this micro-batch must be complete before the next one counts as begun.
  void finish_micro_batch(queue q) { finish_pending_sum(q); }

  /// Waits for all reductions; afterwards `with_reduced` gives the step's gradients.
  void settle(queue q) {
    finish_pending_sum(q);
    for (auto& progress : state_.units) progress.reduction.wait(q);
  }

  /// Calls `function(state)` with the reduced gradients of a unit: the gradient state, or the
  /// accumulated shard.
  template <class Function>
  void with_reduced(unit_id unit, Function function) {
    auto& store = state_.at(unit);
    if constexpr (stage::partitions_optimizer_state) {
      if (state_.reduces_every()) {
        function(store.sums);
        return;
      }
    }
    function(store.gradients);
  }

 private:
  /// Takes the unit's end of the shared region from the unit that had it last.
  void claim_place(unit_id unit, queue q) {
    const unit_plan& plan = state_.plan.units[unit.value];
    if (!plan.shares_gradient_region) return;
    const std::optional<unit_id> other = region_.occupant(plan);
    if (other && *other != unit) {
      auto& progress = state_.progress(*other);
      if (progress.window_is_open) {
        throw usage_error("zero::engine: backward of unit \"" + state_.name(unit) +
                          "\" began while \"" + state_.name(*other) +
                          "\" is still open; at most two neighbouring units can be open at once");
      }
      progress.reduction.wait(q);
      // A rank on its own sums straight from the window that is about to be written.
      if (pending_sum_ == other) finish_pending_sum(q);
    }
    region_.occupy(plan, unit);
  }

  void require_writable(tensor_id tensor, const tensor_info& info) const {
    if (!info.trainable) {
      throw usage_error("zero::engine: tensor \"" + state_.name(tensor) +
                        "\" is frozen and has no gradient");
    }
    const auto& progress = state_.units[info.unit.value];
    if (progress.window_is_open || info.elements == 0) return;
    throw usage_error("zero::engine: the gradient of tensor \"" + state_.name(tensor) +
                      "\" cannot be written: unit \"" + state_.name(info.unit) +
                      (progress.is_reduced ? "\" was reduced already in this pass"
                                           : "\" is not open in the backward traversal"));
  }

  void fill_unwritten(unit_id unit, queue q) {
    auto& store = state_.at(unit);
    for (const interval gap : store.gaps) {
      state_.executor.fill_zero(store.window.at(gap.begin), gap.size(), q);
    }
    for (const tensor_id tensor : state_.layout.tensors(unit)) {
      const tensor_info info = state_.layout.info(tensor);
      if (!info.trainable || state_.layout.is_tied(tensor)) continue;
      if (state_.tensors[tensor.value].is_written) continue;
      state_.executor.fill_zero(store.window.at(state_.layout.offset(tensor)), info.elements, q);
    }
  }

  void add_window_to_sums(unit_id unit, queue q) {
    auto& store = state_.at(unit);
    add_to_sums(store.window.data, store.sums.data, store.trainable.padded_elements(), q);
  }

  /// The first micro-batch replaces what the sums held in the previous step.
  template <class A>
  void add_to_sums(const gradient_type* values, A* sums, std::uint64_t count, queue q) {
    if (state_.micro_batch == 0) {
      state_.executor.convert(values, sums, count, q);
    } else {
      state_.executor.accumulate(values, sums, count, q);
    }
  }

  void round_sums_to_window(unit_id unit, queue q) {
    auto& store = state_.at(unit);
    state_.executor.convert(store.sums.data, store.window.data, store.trainable.padded_elements(),
                            q);
  }

  /// Where the reduced shard goes: into the gradients, in place, or into scratch for the sums.
  gradient_type* destination(unit_id unit) {
    auto& store = state_.at(unit);
    const std::uint64_t own = store.trainable.owned_by(state_.rank()).begin;
    if constexpr (stage::partitions_gradients) {
      if (!state_.reduces_every()) return store.gradients.data;
      if (state_.ranks() == 1) return store.window.data;
      return reinterpret_cast<gradient_type*>(state_.memory.data() + state_.plan.scratch_shard);
    } else {
      return store.window.at(own);
    }
  }

  void start_reduction(unit_id unit, queue q) {
    auto& store = state_.at(unit);
    const partition& cut = store.trainable;
    if (state_.reduces_every()) finish_pending_sum(q);
    gradient_type* const out = destination(unit);
    if (state_.all_ranks() == 1) {
      if (out != store.window.data) {
        state_.executor.convert(store.window.data, out, cut.padded_elements(), q);
      }
    } else {
      const float scale = State::precision::scales_before_rounding
                              ? 1.0F / static_cast<float>(state_.all_ranks())
                              : 1.0F;
      const range<const gradient_type, partial, space> in(store.window.data, cut.padded_elements(),
                                                          store.trainable_padding);
      auto& reduction = state_.progress(unit).reduction;
      reduction = state_.wire.reduce_scatter(
          in, range<gradient_type, shard, space>(out, cut.shard_elements, store.shard_padding),
          scale, q);
      if constexpr (!stage::partitions_optimizer_state) {
        // Stage 0 updates everything everywhere: the all-reduce's second half.
        reduction.wait(q);
        reduction = state_.wire.all_gather(
            range<const gradient_type, shard, space>(out, cut.shard_elements),
            range<gradient_type, full, space>(store.window.data, cut.padded_elements(),
                                              store.trainable_padding),
            q);
      }
    }
    if (state_.reduces_every()) pending_sum_ = unit;
  }

  /// Adds the reduced shard of the last micro-batch reduction to the unit's sums.
  void finish_pending_sum(queue q) {
    if (!pending_sum_) return;
    const unit_id unit = *pending_sum_;
    pending_sum_.reset();
    state_.progress(unit).reduction.wait(q);
    auto& store = state_.at(unit);
    add_to_sums(destination(unit), store.sums.data, store.trainable.shard_elements, q);
  }

  State& state_;
  shared_region region_;
  std::optional<unit_id> pending_sum_;  ///< reduced, not yet added to its sums
};

}  // namespace zero::detail
