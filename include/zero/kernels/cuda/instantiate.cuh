// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include <zero/kernels/cuda/cast.cuh>
#include <zero/kernels/cuda/control_body.hpp>
#include <zero/kernels/cuda/fold.cuh>
#include <zero/kernels/cuda/launch.cuh>
#include <zero/kernels/cuda/norm.cuh>
#include <zero/kernels/cuda/update_body.hpp>
#include <zero/kernels/instantiate.hpp>
#include <zero/numeric/element_traits.hpp>

namespace zero::kernels {
namespace cuda {

template <Optimizer O, Precision P, class G>
void launch_update(const update_operands<O, P, G>& operands, const control_block* control,
                   const typename P::compute_type* scalars, cuda_stream stream) {
  launch("kernels::update", update_body<O, P, G>(operands, control, scalars),
         threads_for(operands.count, update_elements), stream);
}

using any_function = void (*)();

template <class A, class B>
any_function convert_function() {
  void (*const function)(cuda_space, const A*, B*, std::uint64_t, cuda_stream) = &convert<A, B>;
  return reinterpret_cast<any_function>(function);
}

template <class G, class A>
any_function accumulate_function() {
  void (*const function)(cuda_space, const G*, A*, std::uint64_t, cuda_stream) = &accumulate<G, A>;
  return reinterpret_cast<any_function>(function);
}

template <class T>
any_function fill_zero_function() {
  void (*const function)(cuda_space, T*, std::uint64_t, cuda_stream) = &fill_zero<T>;
  return reinterpret_cast<any_function>(function);
}

template <class T, class U>
any_function fold_function() {
  void (*const function)(cuda_space, std::span<const T* const>, U*, std::uint64_t, float,
                         cuda_stream) = &fold<T, U>;
  return reinterpret_cast<any_function>(function);
}

template <class G>
any_function norm_function() {
  void (*const function)(cuda_space, const G*, std::uint64_t, double*, double*, cuda_stream) =
      &sum_of_squares<G>;
  return reinterpret_cast<any_function>(function);
}

}  // namespace cuda

template <Optimizer O, Precision P>
void instantiate<O, P>::update_by_gradients(
    const update_operands<O, P, typename P::gradient_type>& operands, const control_block* control,
    const compute_type* scalars, cuda_stream stream) {
  cuda::launch_update(operands, control, scalars, stream);
}

template <Optimizer O, Precision P>
void instantiate<O, P>::update_by_sums(
    const update_operands<O, P, typename P::accumulation_type>& operands,
    const control_block* control, const compute_type* scalars, cuda_stream stream) {
  cuda::launch_update(operands, control, scalars, stream);
}

template <Optimizer O, Precision P>
void instantiate<O, P>::write_step_message(const control_block* control,
                                           const step_request* request,
                                           const double* sum_of_squares, bool is_counted,
                                           double* message, cuda_stream stream) {
  cuda::launch("kernels::write_step_message",
               cuda::step_message_body{control, request, sum_of_squares, is_counted, message}, 1,
               stream);
}

template <Optimizer O, Precision P>
void instantiate<O, P>::advance(const O& optimizer, const advance_operands<compute_type>& operands,
                                cuda_stream stream) {
  cuda::launch("kernels::advance", cuda::advance_body<O, P>{optimizer, operands}, 1, stream);
}

template <Optimizer O, Precision P>
const typename instantiate<O, P>::function instantiate<O, P>::element_kernels[] = {
    // reduce-scatter, rounded or in the compute type, and the step's message
    cuda::fold_function<typename P::gradient_type, typename P::gradient_type>(),
    cuda::fold_function<typename P::gradient_type,
                        typename element_traits<typename P::gradient_type>::compute_type>(),
    cuda::fold_function<double, double>(),
    // the norm of reduced gradients
    cuda::norm_function<typename P::gradient_type>(),
    cuda::norm_function<typename P::accumulation_type>(),
    // sums over micro-batches, and back
    cuda::convert_function<typename P::gradient_type, typename P::accumulation_type>(),
    cuda::convert_function<typename P::accumulation_type, typename P::gradient_type>(),
    cuda::accumulate_function<typename P::gradient_type, typename P::accumulation_type>(),
    // what users read and write in fp32
    cuda::convert_function<typename P::parameter_type, float>(),
    cuda::convert_function<float, typename P::parameter_type>(),
    cuda::convert_function<float, typename P::gradient_type>(),
    cuda::accumulate_function<float, typename P::gradient_type>(),
    cuda::fill_zero_function<typename P::parameter_type>(),
    cuda::fill_zero_function<typename P::gradient_type>(),
    cuda::fill_zero_function<typename P::accumulation_type>(),
    cuda::fill_zero_function<double>(),
};

}  // namespace zero::kernels
