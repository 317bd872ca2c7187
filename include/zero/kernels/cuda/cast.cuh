// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <zero/kernels/cast.hpp>
#include <zero/kernels/cuda/cast_body.hpp>
#include <zero/kernels/cuda/launch.cuh>

namespace zero::kernels {

template <class A, class B>
void convert(cuda_space, const A* input, B* output, std::uint64_t count, cuda_stream stream) {
  if constexpr (std::is_same_v<A, B>) {
    if (count == 0) return;
    const auto bytes = static_cast<std::size_t>(count) * sizeof(A);
    zero::detail::cuda_try(cudaMemcpyAsync(output, input, bytes, cudaMemcpyDeviceToDevice, stream),
                           "kernels::convert");
  } else {
    const std::uint64_t threads = cuda::threads_for(count, cuda::cast_elements<A, B>);
    cuda::launch("kernels::convert", cuda::convert_body<A, B>{input, output, count}, threads,
                 stream);
  }
}

template <class G, class A>
void accumulate(cuda_space, const G* input, A* sums, std::uint64_t count, cuda_stream stream) {
  const std::uint64_t threads = cuda::threads_for(count, cuda::cast_elements<G, A>);
  cuda::launch("kernels::accumulate", cuda::accumulate_body<G, A>{input, sums, count}, threads,
               stream);
}

template <class T>
void fill_zero(cuda_space, T* values, std::uint64_t count, cuda_stream stream) {
  static_assert(std::is_trivially_copyable_v<T>,
                "zero::kernels::fill_zero: the bits of zero must be zero bits");
  if (count == 0) return;
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  zero::detail::cuda_try(cudaMemsetAsync(values, 0, bytes, stream), "kernels::fill_zero");
}

}  // namespace zero::kernels
