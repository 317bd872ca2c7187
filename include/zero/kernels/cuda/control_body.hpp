// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <zero/config.hpp>
#include <zero/kernels/control.hpp>
#include <zero/kernels/cuda/ops.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>

namespace zero::kernels::cuda {

/// Thread 0 writes this rank's part of the step's message.
struct step_message_body {
  const control_block* control;
  const step_request* request;
  const double* sum_of_squares;
  bool is_counted;
  double* message;

  ZERO_HOST_DEVICE void run(std::uint64_t thread, std::uint64_t /*threads*/) const {
    if (thread != 0) return;
    write_step_message<cuda_ops<double>>(*control, *request, *sum_of_squares, is_counted, message);
  }
};

/// An optimizer whose scalars device code can compute.
template <class O>
concept HasDeviceScalars = requires(const O& optimizer, std::uint64_t step,
                                    const update_arguments& arguments, double* scalars) {
  optimizer.template step_scalars<cuda_ops<double>>(step, arguments, scalars);
};

/// Thread 0 decides the step.
template <Optimizer O, Precision P>
struct advance_body {
  static_assert(
      HasDeviceScalars<O>,
      "zero::kernels::instantiate: the optimizer has no step_scalars (what prepare() "
      "computes, as template <class Ops> ZERO_HOST_DEVICE void step_scalars(std::uint64_t "
      "step, const update_arguments& arguments, double* scalars) const)");

  O optimizer;
  advance_operands<typename P::compute_type> operands;

  ZERO_HOST_DEVICE void run(std::uint64_t thread, std::uint64_t /*threads*/) const {
    if (thread == 0) advance<cuda_ops<double>, P>(optimizer, operands);
  }
};

}  // namespace zero::kernels::cuda
