// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <zero/kernels/control.hpp>
#include <zero/kernels/stream.hpp>
#include <zero/kernels/update.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>
#include <zero/range.hpp>

namespace zero::kernels {

/// The device code of one optimizer and one precision policy; the engine calls it, nvcc compiles
/// it.
///
/// One .cu file of a program says
///
///     #include <zero/kernels/cuda/instantiate.cuh>
///     template struct zero::kernels::instantiate<zero::adamw, zero::bf16_mixed>;
///
/// and all its other files may be compiled without nvcc. Where that file is missing, the linker
/// reports the members below as undefined, with the arguments that have to be instantiated, and the
/// functions of fold.hpp, norm.hpp and cast.hpp that come with them. The CMake function
/// zero_cuda_kernels() writes and adds such a file.
///
/// Policies and optimizers of your own: P::load, P::store, O::update and O::step_scalars carry
/// ZERO_HOST_DEVICE, and O::update takes moments and scalars of any indexable type, as the models
/// of this library do.
template <Optimizer O, Precision P>
struct instantiate {
  using compute_type = typename P::compute_type;

  static void update_by_gradients(const update_operands<O, P, typename P::gradient_type>& operands,
                                  const control_block* control, const compute_type* scalars,
                                  cuda_stream stream);
  static void update_by_sums(const update_operands<O, P, typename P::accumulation_type>& operands,
                             const control_block* control, const compute_type* scalars,
                             cuda_stream stream);
  static void write_step_message(const control_block* control, const step_request* request,
                                 const double* sum_of_squares, bool is_counted, double* message,
                                 cuda_stream stream);
  static void advance(const O& optimizer, const advance_operands<compute_type>& operands,
                      cuda_stream stream);

  /// Refers to the device functions of fold.hpp, norm.hpp and cast.hpp for the types of P, so that
  /// the file that instantiates this defines them, too.
  using function = void (*)();
  static const function element_kernels[];
};

/// One optimizer step on a device, bit for bit that of the host; it does nothing where the control
/// block says that the step is skipped.
///
/// `control` and `scalars`, the O::scalar_count constants of the range's group, lie in device
/// memory, where `advance` wrote them.
/// Stream: ordered, does not synchronise. Throws: cuda_error when the launch fails.
template <Optimizer O, Precision P, class G>
void update(cuda_space, const update_operands<O, P, G>& operands, const control_block* control,
            const typename P::compute_type* scalars, cuda_stream stream) {
  if constexpr (std::is_same_v<G, typename P::gradient_type>) {
    instantiate<O, P>::update_by_gradients(operands, control, scalars, stream);
  } else {
    static_assert(std::is_same_v<G, typename P::accumulation_type>,
                  "zero::kernels::update: gradients must be gradient_type or accumulation_type");
    instantiate<O, P>::update_by_sums(operands, control, scalars, stream);
  }
}

/// write_step_message on a device; all pointers refer to its memory.
/// Stream: ordered, does not synchronise. Throws: cuda_error when the launch fails.
template <Optimizer O, Precision P>
void write_step_message(cuda_space, const control_block* control, const step_request* request,
                        const double* sum_of_squares, bool is_counted, double* message,
                        cuda_stream stream) {
  instantiate<O, P>::write_step_message(control, request, sum_of_squares, is_counted, message,
                                        stream);
}

/// advance on a device, with the same bits; the optimizer travels as a kernel argument.
/// Stream: ordered, does not synchronise. Throws: cuda_error when the launch fails.
template <Precision P, Optimizer O>
void advance(cuda_space, const O& optimizer,
             const advance_operands<typename P::compute_type>& operands, cuda_stream stream) {
  instantiate<O, P>::advance(optimizer, operands, stream);
}

}  // namespace zero::kernels
