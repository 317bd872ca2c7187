// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace cuda_example {

/// y[rows, outputs] = x[rows, inputs] W^T + b, with W[outputs, inputs]. Row-major, in elements.
struct linear_shape {
  std::uint64_t rows = 0;
  std::uint64_t inputs = 0;
  std::uint64_t outputs = 0;
};

/// The program's own kernels, in plain C style: pointers into device memory, sizes, a stream.
///
/// They know nothing of ranks and stages. Parameters and their gradients are of type T, everything
/// else is fp32. Every call enqueues and returns; every output element is written exactly once, by
/// one thread and in a fixed order, so that a run can be repeated to the bit. Simple rather than
/// fast: a program with large matrices calls cuBLAS in these places.
///
/// Declared here for files that nvcc does not see; layers.cu instantiates layers<zero::bfloat16>.
template <class T>
struct layers {
  /// y[tokens, width]: row i is row token[i] of the table.
  static void embed_forward(float* y, const T* table, const std::uint8_t* token,
                            std::uint64_t tokens, std::uint64_t width, cudaStream_t stream);
  /// `residual`: a further summand [rows, outputs], or null.
  static void linear_forward(float* y, const float* x, const T* weight, const T* bias,
                             const float* residual, const linear_shape& shape, cudaStream_t stream);
  static void gelu_forward(float* y, const float* x, std::uint64_t count, cudaStream_t stream);

  /// For each row: its loss in nats, and the gradient of the mean loss with respect to its logits.
  static void cross_entropy(float* loss, float* logits_gradient, const float* logits,
                            const std::uint8_t* target, std::uint64_t rows, std::uint64_t classes,
                            cudaStream_t stream);

  /// dx = dy W, or dx += dy W.
  static void linear_backward_input(float* dx, bool adds, const float* dy, const T* weight,
                                    const linear_shape& shape, cudaStream_t stream);
  /// dW = dy^T x, db = the sums of dy's columns.
  static void linear_backward_parameters(T* weight_gradient, T* bias_gradient, const float* dy,
                                         const float* x, const linear_shape& shape,
                                         cudaStream_t stream);
  /// dx = dy gelu'(x); dx may be dy.
  static void gelu_backward(float* dx, const float* dy, const float* x, std::uint64_t count,
                            cudaStream_t stream);
  static void embed_backward(T* table_gradient, std::uint64_t table_rows, const float* dy,
                             const std::uint8_t* token, std::uint64_t tokens, std::uint64_t width,
                             cudaStream_t stream);
};

}  // namespace cuda_example
