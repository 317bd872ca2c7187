// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <zero/detail/engine_state.hpp>
#include <zero/detail/gradient_flow.hpp>
#include <zero/detail/step_parts.hpp>
#include <zero/detail/step_request.hpp>
#include <zero/error.hpp>
#include <zero/kernels/chunked_norm.hpp>
#include <zero/kernels/control.hpp>
#include <zero/kernels/update.hpp>
#include <zero/numeric/scalar_ops.hpp>

namespace zero::detail {

/// Turns reduced gradients into new parameters: one message between the ranks, then one pass over
/// this rank's part of the model states. In host memory; <zero/cuda.hpp> brings that of devices.
template <class State>
class update_flow {
 public:
  using queue = typename State::queue;
  using space = typename State::space;
  using precision = typename State::precision;
  using optimizer = typename State::optimizer_type;
  using scalars = std::array<double, optimizer::scalar_count>;
  using ticket = step_ticket;

  update_flow(State& state, gradient_flow<State>& gradients)
      : state_(state),
        gradients_(gradients),
        control_(kernels::initial_control(state.options.loss_scale)),
        group_arguments_(state.layout.group_count()),
        group_scalars_(state.layout.group_count()) {
    static_assert(kernels::step_message_elements == plan::control_elements);
  }

  /// Bytes of the arena's control block.
  static constexpr std::uint64_t control_bytes(const model_layout&, const plan_request&) noexcept {
    return plan::control_elements * sizeof(double);
  }
  /// What has to be done once there is memory.
  void start(queue) noexcept {}

  /// Takes the arguments of the next step. Throws: usage_error; nothing has changed then.
  void prepare(const step_arguments& arguments, queue) {
    check_step_arguments(arguments, state_.layout);
    request_ = make_step_request(
        arguments, {state_.all_ranks(), state_.micro_batches, precision::scales_before_rounding});
    write_group_arguments(arguments, state_.layout,
                          static_cast<double>(state_.optimizer.weight_decay), group_arguments_);
    for (std::size_t g = 0; g < group_scalars_.size(); ++g) {
      group_scalars_[g] = state_.optimizer.prepare(control_.steps + 1, group_arguments_[g]);
    }
  }

  /// Agrees with the other ranks on the step, and updates the states that this rank holds.
  /// Throws: mismatch_error on every rank, before any state changes, when they want different
  /// steps.
  void run(queue q) {
    const std::span<double> message = this->message();
    // Replicas have the same gradients: one of them counts.
    const bool is_counted = replica_of(state_.wire.communicator()) == 0;
    kernels::write_step_message<scalar_ops<double>>(control_, request_, local_sum_of_squares(),
                                                    is_counted, message.data());
    if (state_.all_ranks() > 1) {
      state_.wire.all_reduce(range<double, full, space>(message.data(), message.size()), q).wait(q);
    }
    const bool is_taken = kernels::decide<scalar_ops<double>, precision>(
        control_, request_, message.data(), state_.all_ranks());
    if (control_.arguments_differ != 0) throw_mismatch(state_, control_.steps);
    if (is_taken) apply();
  }

  /// `report` has what the engine knows of the step that was run.
  ticket finish(step_report report, queue) const {
    fill_report(control_, report);
    return ticket(report);
  }

  /// What was decided so far.
  const kernels::control_block& control(queue) const noexcept { return control_; }
  /// What a pass gives to the user's loss.
  float pass_loss_scale() const noexcept {
    return static_cast<float>(loss_scale_of<precision>(control_));
  }

 private:
  std::span<double> message() noexcept {
    return {reinterpret_cast<double*>(state_.memory.data() + state_.plan.control),
            plan::control_elements};
  }

  /// Rank r sums the squares of its shards, unit by unit, in double, whatever the stage: so all
  /// stages get the same bits. Tied storage counts once; frozen tensors and padding never.
  double local_sum_of_squares() {
    double sum = 0;
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
      gradients_.with_reduced(unit_id{u}, [&](const auto& gradients) {
        for (const segment& part : state_.at(unit_id{u}).shard_segments) {
          // In the order of devices, so that they get these bits, too.
          sum += kernels::chunked_sum_of_squares(space{}, gradients.at(part.begin), part.count);
        }
      });
    }
    return sum;
  }

  void apply() {
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
      auto& store = state_.at(unit_id{u});
      gradients_.with_reduced(unit_id{u}, [&](const auto& gradients) {
        for (const segment& part : store.updated_segments) {
          kernels::update(space{}, operands_of<State>(store, gradients, part),
                          group_scalars_[part.group.value], control_.gradient_scale);
        }
      });
    }
  }

  State& state_;
  gradient_flow<State>& gradients_;
  kernels::control_block control_;
  kernels::step_request request_;
  std::vector<update_arguments> group_arguments_;
  std::vector<scalars> group_scalars_;
};

}  // namespace zero::detail
