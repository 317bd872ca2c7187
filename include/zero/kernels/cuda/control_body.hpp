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

/// Thread 0 decides the step.
template <Optimizer O, Precision P>
struct advance_body {
  O optimizer;
  advance_operands<typename P::compute_type> operands;

  ZERO_HOST_DEVICE void run(std::uint64_t thread, std::uint64_t /*threads*/) const {
    if (thread == 0) advance<cuda_ops<double>, P>(optimizer, operands);
  }
};

}  // namespace zero::kernels::cuda
