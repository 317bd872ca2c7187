// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <zero/detail/cuda_try.hpp>
#include <zero/kernels/stream.hpp>

#if defined(__USE_FAST_MATH__)
#error "zero: device code must be compiled without -use_fast_math, which changes its results"
#endif

namespace zero::kernels::cuda {

inline constexpr unsigned threads_per_block = 256;
/// Leaves 80 registers to a thread. Without this bound ptxas saves registers at the cost of stack
/// accesses around the slow path of a division.
inline constexpr unsigned blocks_per_multiprocessor = 3;
/// Beyond this many blocks the threads stride over the range: 2^31 elements in packs of eight.
inline constexpr std::uint64_t max_blocks = std::uint64_t{1} << 20U;

__device__ inline std::uint64_t thread_index() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::uint64_t thread_count() {
  return std::uint64_t{gridDim.x} * blockDim.x;
}

/// The entry point of every kernel whose threads work independently of each other.
template <class Body>
__global__ void __launch_bounds__(threads_per_block, blocks_per_multiprocessor)
    run(const __grid_constant__ Body body) {
  body.run(thread_index(), thread_count());
}

/// Enqueues an entry point with about `threads` threads; nothing for none.
///
/// Throws: cuda_error with the operation's name when the launch fails.
template <class Body>
void launch(const char* operation, void (*entry)(Body), const Body& body, std::uint64_t threads,
            cuda_stream stream) {
  if (threads == 0) return;
  const std::uint64_t wanted = (threads + threads_per_block - 1) / threads_per_block;
  const auto blocks = static_cast<unsigned>(wanted < max_blocks ? wanted : max_blocks);
  entry<<<blocks, threads_per_block, 0, stream>>>(body);
  zero::detail::cuda_try(cudaGetLastError(), operation);
}

/// Enqueues a body with about `threads` threads.
template <class Body>
void launch(const char* operation, const Body& body, std::uint64_t threads, cuda_stream stream) {
  launch(operation, &run<Body>, body, threads, stream);
}

/// The threads that cover `count` elements in packs of `elements`.
constexpr std::uint64_t threads_for(std::uint64_t count, std::uint64_t elements) noexcept {
  return count / elements + (count % elements != 0 ? 1 : 0);
}

}  // namespace zero::kernels::cuda
