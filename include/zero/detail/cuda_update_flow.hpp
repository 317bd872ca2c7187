// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <zero/cuda/device.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_control_layout.hpp>
#include <zero/detail/cuda_executor.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/detail/cuda_reports.hpp>
#include <zero/detail/engine_state.hpp>
#include <zero/detail/gradient_flow.hpp>
#include <zero/detail/step_parts.hpp>
#include <zero/detail/step_request.hpp>
#include <zero/detail/update_flow_for.hpp>
#include <zero/error.hpp>
#include <zero/kernels/control.hpp>
#include <zero/kernels/instantiate.hpp>
#include <zero/kernels/norm.hpp>

namespace zero::detail {

/// A step that was enqueued on a device. Never blocks unless asked; does not outlive its engine.
template <class Updates>
class cuda_step_ticket {
 public:
  cuda_step_ticket(Updates& updates, std::uint64_t sequence, const step_report& report) noexcept
      : updates_(&updates), sequence_(sequence), report_(report) {}

  /// Blocks the host until the step is done; what was enqueued after it is not waited for.
  /// Throws: mismatch_error where the ranks wanted different steps: then no state has changed on
  /// any of them; usage_error when 16 more steps were enqueued, and for a step that was captured
  /// into a graph (ask engine.latest_report()); what went wrong with the communicator; cuda_error.
  step_report get() const { return updates_->report(sequence_, report_); }

 private:
  Updates* updates_;
  std::uint64_t sequence_;
  step_report report_;
};

/// Turns reduced gradients into new parameters on a device, without the host: what a step decides
/// with (norm, verdict, clip factor, step count, loss scale) lies in the control block there.
///
/// The functions that decide are those of the host, and sums are taken in the host's order: the
/// bits are the same.
template <class State>
class cuda_update_flow {
 public:
  using queue = typename State::queue;
  using space = typename State::space;
  using precision = typename State::precision;
  using optimizer = typename State::optimizer_type;
  using compute_type = typename precision::compute_type;
  using ticket = cuda_step_ticket<cuda_update_flow>;

  /// Throws: cuda_error.
  cuda_update_flow(State& state, gradient_flow<State>& gradients)
      : state_(state),
        gradients_(gradients),
        layout_(state.layout, state.plan.request, scalar_bytes),
        sent_(static_cast<std::size_t>(layout_.sent_bytes(state.layout.group_count()))),
        group_arguments_(state.layout.group_count()) {
    const cuda_device_guard guard(state.executor.device());
    reports_ = std::make_unique<cuda_reports>();
  }

  static std::uint64_t control_bytes(const model_layout& layout, const plan_request& request) {
    return cuda_control_layout(layout, request, scalar_bytes).bytes;
  }

  /// Writes the control block before the first step.
  void start(queue q) {
    kernels::control_block initial = kernels::initial_control(state_.options.loss_scale);
    if constexpr (!precision::loss_scaling::is_dynamic) initial.loss_scale = 1;
    state_.executor.upload(&initial, block(), 1, q);
  }

  /// Sends the arguments of the next step, by a copy in stream order.
  /// Throws: usage_error; nothing has changed then.
  void prepare(const step_arguments& arguments, queue q) {
    check_step_arguments(arguments, state_.layout);
    const kernels::step_request request = make_step_request(
        arguments, {state_.all_ranks(), state_.micro_batches, precision::scales_before_rounding});
    write_group_arguments(arguments, state_.layout,
                          static_cast<double>(state_.optimizer.weight_decay), group_arguments_);
    // Its checks; the scalars themselves are computed where the step is counted.
    for (const update_arguments& group : group_arguments_) {
      static_cast<void>(state_.optimizer.prepare(1, group));
    }
    std::memcpy(sent_.data(), &request, sizeof(request));
    std::memcpy(sent_.data() + sizeof(request), group_arguments_.data(),
                group_arguments_.size() * sizeof(update_arguments));
    state_.executor.upload(static_cast<const std::byte*>(sent_.data()),
                           at<std::byte>(layout_.request), sent_.size(), q);
  }

  /// Enqueues the step: the norm, the message between the ranks, the decision, the updates.
  void run(queue q) {
    const cuda_device_guard guard(state_.executor.device());
    const cudaStream_t stream = q.stream();
    add_up_squares(q);
    // Replicas have the same gradients: one of them counts.
    const bool is_counted = replica_of(state_.wire.communicator()) == 0;
    kernels::write_step_message<optimizer, precision>(cuda_space{}, block(), request(), squares(),
                                                      is_counted, message(), stream);
    if (state_.all_ranks() > 1) {
      state_.wire
          .all_reduce(range<double, full, space>(message(), kernels::step_message_elements), q)
          .wait(q);
    }
    kernels::advance<precision>(
        cuda_space{}, state_.optimizer,
        {block(), request(), message(), at<const update_arguments>(layout_.groups),
         state_.layout.group_count(), state_.all_ranks(), scalars()},
        stream);
    update_all(stream);
    latest_ = is_capturing(q) ? 0 : reports_->enqueue(block(), q);
  }

  ticket finish(const step_report& report, queue) noexcept { return {*this, latest_, report}; }

  /// What a step has decided, once it is done. For tickets.
  step_report report(std::uint64_t sequence, step_report report) const {
    if (sequence == 0) {
      throw usage_error(
          "zero::engine: a step that was captured into a graph has no report of its own; ask "
          "engine.latest_report() after a launch of the graph");
    }
    if (reports_->is_overwritten(sequence)) {
      throw usage_error("zero::engine: the report of a step was asked for " +
                        std::to_string(cuda_reports::places) + " or more steps later");
    }
    state_.executor.await(reports_->arrived(sequence));
    const kernels::control_block& control = reports_->control(sequence);
    if (control.arguments_differ != 0) throw_mismatch(state_, control.steps);
    fill_report(control, report);
    return report;
  }

  /// The control block after all that the queue holds. Waits for it.
  kernels::control_block control(queue q) const {
    kernels::control_block control;
    state_.executor.download(static_cast<const kernels::control_block*>(block()), &control, 1, q);
    return control;
  }

  /// The address of the scale in device memory.
  const double* pass_loss_scale() const noexcept { return &block()->loss_scale; }

 private:
  static constexpr std::uint64_t scalar_bytes = optimizer::scalar_count * sizeof(compute_type);

  template <class T>
  T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(state_.memory.data() + state_.plan.control + offset);
  }
  kernels::control_block* block() const noexcept {
    return at<kernels::control_block>(layout_.block);
  }
  const kernels::step_request* request() const noexcept {
    return at<const kernels::step_request>(layout_.request);
  }
  double* message() const noexcept { return at<double>(layout_.message); }
  double* squares() const noexcept { return at<double>(layout_.squares); }
  compute_type* scalars() const noexcept { return at<compute_type>(layout_.scalars); }

  /// Unit by unit and segment by segment, as on the host.
  void add_up_squares(queue q) {
    state_.executor.fill_zero(squares(), 1, q);
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
      gradients_.with_reduced(unit_id{u}, [&](const auto& gradients) {
        for (const segment& part : state_.at(unit_id{u}).shard_segments) {
          kernels::sum_of_squares(cuda_space{}, unwritable(gradients.at(part.begin)), part.count,
                                  at<double>(layout_.scratch), squares(), q.stream());
        }
      });
    }
  }

  void update_all(cudaStream_t stream) {
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
      auto& store = state_.at(unit_id{u});
      gradients_.with_reduced(unit_id{u}, [&](const auto& gradients) {
        for (const segment& part : store.updated_segments) {
          kernels::update(cuda_space{}, operands_of<State>(store, gradients, part), block(),
                          scalars() + part.group.value * optimizer::scalar_count, stream);
        }
      });
    }
  }

  template <class T>
  static const T* unwritable(T* values) noexcept {
    return values;
  }

  State& state_;
  gradient_flow<State>& gradients_;
  cuda_control_layout layout_;
  std::vector<std::byte> sent_;
  std::vector<update_arguments> group_arguments_;
  std::unique_ptr<cuda_reports> reports_;
  std::uint64_t latest_ = 0;
};

template <class State>
struct update_flow_in<State, cuda_space> {
  using type = cuda_update_flow<State>;
};

}  // namespace zero::detail
