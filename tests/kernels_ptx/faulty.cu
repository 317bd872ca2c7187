// SPDX-License-Identifier: Apache-2.0
// Kernels with mistakes that check.py has to report; no part of the library.
#include <cstddef>
#include <cstdint>

#include <zero/kernels/cuda/launch.cuh>
#include <zero/kernels/cuda/update_body.hpp>

namespace cuda = zero::kernels::cuda;

using scalar_body = cuda::update_body<zero::adamw, zero::bf16_mixed, zero::bfloat16, 1>;

/// Right results, one element at a time: no 128-bit access anywhere.
extern "C" __global__ void scalar_update(const __grid_constant__ scalar_body body) {
  body.run(cuda::thread_index(), cuda::thread_count());
}

/// Elements in an order that is known at run time only, so that they cannot stay in registers.
extern "C" __global__ void update_through_local_memory(const float* input, const int* order,
                                                       float* output) {
  const std::uint64_t first = cuda::thread_index() * 8;
  auto values = cuda::load_pack<8>(input + first);
  for (int i = 0; i < 8; ++i) values[static_cast<std::size_t>(order[i])] += 1.0F;
  cuda::store_pack<8>(output + first, values);
}
