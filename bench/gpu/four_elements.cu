// SPDX-License-Identifier: Apache-2.0
#include "four_elements.hpp"

#include <cstddef>

#include <zero/kernels/cuda/launch.cuh>
#include <zero/kernels/cuda/update_body.hpp>

void gpu_bench::update_four_elements(const four_operands& operands,
                                     const zero::kernels::control_block* control,
                                     const float* scalars, zero::kernels::cuda_stream stream) {
  namespace cuda = zero::kernels::cuda;
  constexpr std::size_t elements = 4;
  cuda::launch("kernels::update",
               cuda::update_body<zero::adamw, zero::bf16_mixed, zero::bfloat16, elements>(
                   operands, control, scalars),
               cuda::threads_for(operands.count, elements), stream);
}
