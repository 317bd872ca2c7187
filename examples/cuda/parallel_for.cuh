// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include <zero/detail/cuda_try.hpp>

#include "parallel_for.hpp"

namespace cuda_example {

template <class Function>
__global__ void call_for_each(std::uint64_t count, const Function function) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) function(i);
}

template <class Function>
void parallel_for(std::uint64_t count, const Function& function, cudaStream_t stream) {
  if (count == 0) return;
  constexpr unsigned threads = 128;
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  call_for_each<<<blocks, threads, 0, stream>>>(count, function);
  zero::detail::cuda_try(cudaGetLastError(), "a kernel of the example");
}

}  // namespace cuda_example
