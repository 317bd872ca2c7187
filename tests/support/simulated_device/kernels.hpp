// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include <zero/detail/cuda_try.hpp>
#include <zero/kernels/cuda/fold_body.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/kernels/stream.hpp>
#include <zero/range.hpp>

#include "support/simulated_device/simulated_device.hpp"

// The device side of kernels/*.hpp for a test that nvcc does not compile: the bodies that it would
// compile run on the host, when the scheduler comes to their launch.

namespace zero::test {

/// Stands for the __global__ function of a body; only its address is used.
template <class Body>
void simulated_entry(Body) {}

/// As kernels::cuda::launch, with few threads: bodies stride over their range.
template <class Body>
void launch_simulated(const char* operation, const Body& body, kernels::cuda_stream stream) {
  static const bool is_registered = [] {
    simulate_kernel<Body>(&simulated_entry<Body>);
    return true;
  }();
  static_cast<void>(is_registered);
  Body argument = body;
  void* arguments[] = {&argument};
  constexpr unsigned threads = 3;
  zero::detail::cuda_try(cudaLaunchKernel(reinterpret_cast<const void*>(&simulated_entry<Body>),
                                          dim3(1), dim3(threads), arguments, 0, stream),
                         operation);
}

}  // namespace zero::test

namespace zero::kernels {

template <class T, class U>
void fold(cuda_space, std::span<const T* const> inputs, U* output, std::uint64_t count, float scale,
          cuda_stream stream) {
  test::launch_simulated("kernels::fold", cuda::fold_body<T, U>(inputs, output, count, scale),
                         stream);
}

}  // namespace zero::kernels
