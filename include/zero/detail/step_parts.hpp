// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <zero/detail/communicator_queries.hpp>
#include <zero/detail/unit_store.hpp>
#include <zero/engine_options.hpp>
#include <zero/error.hpp>
#include <zero/kernels/control.hpp>
#include <zero/kernels/update.hpp>

// What the updates of the host and of devices have in common.

namespace zero::detail {

/// The arrays of the update of one segment.
template <class State, class Store, class G>
auto operands_of(Store& store, const placed<G>& gradients, const segment& part) {
  using precision = typename State::precision;
  kernels::update_operands<typename State::optimizer_type, precision, G> operands;
  operands.parameters = store.parameters.at(part.begin);
  if constexpr (has_master<precision>) operands.masters = store.masters.at(part.begin);
  for (std::size_t m = 0; m < operands.moments.size(); ++m) {
    operands.moments[m] = store.moments[m].at(part.begin);
  }
  operands.gradients = gradients.at(part.begin);
  operands.count = part.count;
  return operands;
}

/// The scale that the next pass uses.
template <class P>
double loss_scale_of(const kernels::control_block& control) noexcept {
  return P::loss_scaling::is_dynamic ? control.loss_scale : 1.0;
}

/// Adds to a report what the latest step has decided.
inline void fill_report(const kernels::control_block& control, step_report& report) noexcept {
  report.step = control.steps;
  report.skipped_steps = control.skipped_steps;
  report.skipped = control.found_inf != 0;
  report.grad_norm = control.grad_norm;
  report.loss_scale = control.step_loss_scale;
}

template <class State>
[[noreturn]] void throw_mismatch(const State& state, std::uint64_t steps) {
  throw mismatch_error(
      "the ranks passed different arguments to step() (lr, clip, divisor, group_lr) or have "
      "taken different numbers of steps or micro-batches; no state has changed",
      {std::string(backend_of(state.wire.communicator())), state.rank(), -1, "step", steps, 0});
}

}  // namespace zero::detail
