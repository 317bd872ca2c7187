// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <zero/detail/engine_state.hpp>
#include <zero/detail/gradient_flow.hpp>
#include <zero/detail/step_math.hpp>
#include <zero/error.hpp>
#include <zero/kernels/norm.hpp>
#include <zero/kernels/update.hpp>

namespace zero::detail {

/// Turns reduced gradients into new parameters: one message between the ranks, then one pass over
/// this rank's part of the model states.
template <class State>
class update_flow {
 public:
  using queue = typename State::queue;
  using space = typename State::space;
  using precision = typename State::precision;
  using optimizer = typename State::optimizer_type;
  using scalars = std::array<double, optimizer::scalar_count>;

  update_flow(State& state, gradient_flow<State>& gradients)
      : state_(state), gradients_(gradients), group_scalars_(state.layout.group_count()) {
    static_assert(step_message::size == plan::control_elements);
  }

  /// The common verdict of all ranks about the reduced gradients; changes nothing but the control
  /// block. Throws: mismatch_error on every rank when the arguments differ between ranks.
  struct verdict {
    bool is_finite = true;
    gradient_factors factors;
  };
  verdict agree(const step_arguments& arguments, queue q) {
    check(arguments);
    const std::uint64_t hash = hash_of(arguments);
    const std::span<double, step_message::size> values = control();
    // Replicas have the same gradients: one of them counts.
    const bool is_counted = replica_of(state_.wire.communicator()) == 0;
    step_message::write(values, local_sum_of_squares(), is_counted, hash);
    if (state_.all_ranks() > 1) {
      state_.wire.all_reduce(range<double, full, space>(values.data(), values.size()), q).wait(q);
    }
    if (!step_message::arguments_agree(values, hash, state_.all_ranks())) {
      throw mismatch_error(
          "the ranks passed different arguments to step() (lr, clip, divisor, group_lr) or have "
          "taken different numbers of steps or micro-batches; no state has changed",
          {std::string(backend_of(state_.wire.communicator())), state_.rank(), -1, "step",
           state_.steps, 0});
    }
    return {step_message::is_finite(values),
            gradient_factors::from(step_message::sum_of_squares(values), unscale_factor(arguments),
                                   arguments.clip)};
  }

  /// Updates the states that this rank holds. Moves nothing.
  void apply(const step_arguments& arguments, float gradient_scale, std::uint64_t step) {
    prepare_groups(arguments, step);
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
      auto& store = state_.at(unit_id{u});
      gradients_.with_reduced(unit_id{u}, [&](const auto& gradients) {
        for (const segment& part : store.updated_segments) {
          update(store, gradients, part, gradient_scale);
        }
      });
    }
  }

 private:
  std::span<double, step_message::size> control() noexcept {
    return std::span<double, step_message::size>(
        reinterpret_cast<double*>(state_.memory.data() + state_.plan.control), step_message::size);
  }

  void check(const step_arguments& arguments) const {
    const auto reject = [](const char* what, double value) {
      throw usage_error(std::string("zero::engine::step: ") + what + " is " +
                        std::to_string(value));
    };
    if (!std::isfinite(arguments.lr)) reject("lr", arguments.lr);
    if (!(arguments.clip >= 0)) reject("clip", arguments.clip);
    if (arguments.divisor && !(*arguments.divisor > 0)) reject("divisor", *arguments.divisor);
    for (const group_rate& group : arguments.group_lr) {
      if (group.group.value >= state_.layout.group_count()) {
        throw usage_error("zero::engine::step: group_lr names group " +
                          std::to_string(group.group.value) + " of " +
                          std::to_string(state_.layout.group_count()));
      }
      if (!std::isfinite(group.lr)) reject("a group's lr", group.lr);
    }
  }

  double divisor(const step_arguments& arguments) const noexcept {
    return arguments.divisor.value_or(static_cast<double>(state_.all_ranks()) *
                                      static_cast<double>(state_.micro_batches));
  }

  /// From stored gradients to mean gradients. The fold of fp16 has divided by N already.
  double unscale_factor(const step_arguments& arguments) const noexcept {
    const double divided = precision::scales_before_rounding ? state_.all_ranks() : 1;
    return divided / (divisor(arguments) * loss_scale());
  }
  double loss_scale() const noexcept {
    return precision::loss_scaling::is_dynamic ? state_.scale.value() : 1.0;
  }

  std::uint64_t hash_of(const step_arguments& arguments) const noexcept {
    hasher hash;
    hash.add(state_.steps).add(state_.skipped_steps).add(state_.micro_batches);
    hash.add(arguments.lr).add(arguments.clip).add(divisor(arguments)).add(loss_scale());
    for (const group_rate& group : arguments.group_lr) {
      hash.add(std::uint64_t{group.group.value}).add(group.lr);
    }
    return hash.value();
  }

  /// Rank r sums the squares of its shards, unit by unit, in double, whatever the stage: so all
  /// stages get the same bits. Tied storage counts once; frozen tensors and padding never.
  double local_sum_of_squares() {
    double sum = 0;
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
      gradients_.with_reduced(unit_id{u}, [&](const auto& gradients) {
        for (const segment& part : state_.at(unit_id{u}).shard_segments) {
          sum += kernels::sum_of_squares(space{}, gradients.at(part.begin), part.count);
        }
      });
    }
    return sum;
  }

  void prepare_groups(const step_arguments& arguments, std::uint64_t step) {
    for (std::uint32_t g = 0; g < state_.layout.group_count(); ++g) {
      const group_options& group = state_.layout.group(group_id{g});
      double lr = arguments.lr * group.lr_multiplier.value_or(1.0);
      for (const group_rate& other : arguments.group_lr) {
        if (other.group == group_id{g}) lr = other.lr;
      }
      const double weight_decay =
          group.weight_decay.value_or(static_cast<double>(state_.optimizer.weight_decay));
      group_scalars_[g] = state_.optimizer.prepare(step, {lr, weight_decay});
    }
  }

  template <class Store, class G>
  void update(Store& store, const placed<G>& gradients, const segment& part, float scale) {
    kernels::update_operands<optimizer, precision, G> operands;
    operands.parameters = store.parameters.at(part.begin);
    if constexpr (has_master<precision>) operands.masters = store.masters.at(part.begin);
    for (std::size_t m = 0; m < operands.moments.size(); ++m) {
      operands.moments[m] = store.moments[m].at(part.begin);
    }
    operands.gradients = gradients.at(part.begin);
    operands.count = part.count;
    kernels::update(space{}, operands, group_scalars_[part.group.value], scale);
  }

  State& state_;
  gradient_flow<State>& gradients_;
  std::vector<scalars> group_scalars_;
};

}  // namespace zero::detail
