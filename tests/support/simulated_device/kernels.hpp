// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include <zero/detail/cuda_try.hpp>
#include <zero/kernels/cast.hpp>
#include <zero/kernels/cuda/cast_body.hpp>
#include <zero/kernels/cuda/control_body.hpp>
#include <zero/kernels/cuda/fold_body.hpp>
#include <zero/kernels/cuda/norm_body.hpp>
#include <zero/kernels/cuda/update_body.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/kernels/instantiate.hpp>
#include <zero/kernels/norm.hpp>
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

template <class A, class B>
void convert(cuda_space, const A* input, B* output, std::uint64_t count, cuda_stream stream) {
  test::launch_simulated("kernels::convert", cuda::convert_body<A, B>{input, output, count},
                         stream);
}

template <class G, class A>
void accumulate(cuda_space, const G* input, A* sums, std::uint64_t count, cuda_stream stream) {
  test::launch_simulated("kernels::accumulate", cuda::accumulate_body<G, A>{input, sums, count},
                         stream);
}

template <class T>
void fill_zero(cuda_space, T* values, std::uint64_t count, cuda_stream stream) {
  if (count == 0) return;
  zero::detail::cuda_try(
      cudaMemsetAsync(values, 0, static_cast<std::size_t>(count) * sizeof(T), stream),
      "kernels::fill_zero");
}

template <class G>
void sum_of_squares(cuda_space, const G* values, std::uint64_t count, double* scratch,
                    double* total, cuda_stream stream) {
  const cuda::chunk_sums_body<G, true> first(values, count, scratch, total);
  test::launch_simulated("kernels::sum_of_squares", first, stream);
  for (std::uint64_t left = first.chunks(); left > 1;) {
    double* const above = scratch + left;
    const cuda::chunk_sums_body<double, false> next(scratch, left, above, total);
    test::launch_simulated("kernels::sum_of_squares", next, stream);
    scratch = above;
    left = next.chunks();
  }
}

template <Optimizer O, Precision P>
void instantiate<O, P>::update_by_gradients(
    const update_operands<O, P, typename P::gradient_type>& operands, const control_block* control,
    const compute_type* scalars, cuda_stream stream) {
  test::launch_simulated(
      "kernels::update",
      cuda::update_body<O, P, typename P::gradient_type>(operands, control, scalars), stream);
}

template <Optimizer O, Precision P>
void instantiate<O, P>::update_by_sums(
    const update_operands<O, P, typename P::accumulation_type>& operands,
    const control_block* control, const compute_type* scalars, cuda_stream stream) {
  test::launch_simulated(
      "kernels::update",
      cuda::update_body<O, P, typename P::accumulation_type>(operands, control, scalars), stream);
}

template <Optimizer O, Precision P>
void instantiate<O, P>::write_step_message(const control_block* control,
                                           const step_request* request,
                                           const double* sum_of_squares, bool is_counted,
                                           double* message, cuda_stream stream) {
  test::launch_simulated(
      "kernels::write_step_message",
      cuda::step_message_body{control, request, sum_of_squares, is_counted, message}, stream);
}

template <Optimizer O, Precision P>
void instantiate<O, P>::advance(const O& optimizer, const advance_operands<compute_type>& operands,
                                cuda_stream stream) {
  test::launch_simulated("kernels::advance", cuda::advance_body<O, P>{optimizer, operands}, stream);
}

}  // namespace zero::kernels
