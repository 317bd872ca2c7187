// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace gpt {

/// A row-major matrix that is read: element (i, j) lies at data[i * stride + j], or at
/// data[j * stride + i] when transposed.
template <class Real>
struct matrix {
  const Real* data;
  std::int64_t stride;
  bool is_transposed = false;
};

/// The same storage seen with rows and columns exchanged; nothing is moved.
template <class Real>
constexpr matrix<Real> transposed(matrix<Real> m) {
  return {m.data, m.stride, !m.is_transposed};
}

/// Sizes of a product: C is rows x columns, the sum runs over inner.
struct product_shape {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
};

/// alpha scales the product, beta what C held before (0 ignores it, 1 accumulates).
template <class Real>
struct product_scale {
  Real alpha = 1;
  Real beta = 0;
};

/// C = alpha * A * B + beta * C by the matrix library, on the calling thread alone.
/// Throws: std::runtime_error when the library refuses the arguments.
void matmul(product_shape shape, matrix<float> a, matrix<float> b, float* c,
            std::int64_t c_stride, product_scale<float> scale = {});

/// The same product by plain loops, for gradient checks.
void matmul(product_shape shape, matrix<double> a, matrix<double> b, double* c,
            std::int64_t c_stride, product_scale<double> scale = {});

/// Makes every later matmul of the calling thread run on that thread alone.
/// Call it first in every rank thread and in every process: otherwise each rank starts a thread
/// pool of its own, and the bits of a weight gradient depend on how many threads that pool has.
void single_threaded_math();

}  // namespace gpt
