// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zero/kernels/control.hpp>
#include <zero/kernels/stream.hpp>
#include <zero/kernels/update.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>

namespace gpu_bench {

using four_operands = zero::kernels::update_operands<zero::adamw, zero::bf16_mixed, zero::bfloat16>;

/// The library's update with four elements per thread and round instead of eight.
void update_four_elements(const four_operands& operands,
                          const zero::kernels::control_block* control, const float* scalars,
                          zero::kernels::cuda_stream stream);

}  // namespace gpu_bench
