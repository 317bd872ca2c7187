// SPDX-License-Identifier: Apache-2.0
#include "matmul.hpp"

#include <dnnl.h>

#include <stdexcept>
#include <string>

// The OpenMP runtime that the matrix library was linked with. Declared here instead of compiling
// with -fopenmp: under clang that flag would load a second, different runtime.
extern "C" void omp_set_num_threads(int count);

namespace gpt {

void single_threaded_math() { omp_set_num_threads(1); }

void matmul(product_shape shape, matrix<float> a, matrix<float> b, float* c,
            std::int64_t c_stride, product_scale<float> scale) {
  const auto status = dnnl_sgemm(a.is_transposed ? 'T' : 'N', b.is_transposed ? 'T' : 'N',
                                 shape.rows, shape.columns, shape.inner, scale.alpha, a.data,
                                 a.stride, b.data, b.stride, scale.beta, c, c_stride);
  if (status != dnnl_success) {
    throw std::runtime_error("matmul: dnnl_sgemm failed with status " + std::to_string(status) +
                             " for rows " + std::to_string(shape.rows) + ", columns " +
                             std::to_string(shape.columns) + ", inner " +
                             std::to_string(shape.inner));
  }
}

void matmul(product_shape shape, matrix<double> a, matrix<double> b, double* c,
            std::int64_t c_stride, product_scale<double> scale) {
  const auto at = [](const matrix<double>& m, std::int64_t i, std::int64_t j) {
    return m.is_transposed ? m.data[j * m.stride + i] : m.data[i * m.stride + j];
  };
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    for (std::int64_t j = 0; j < shape.columns; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < shape.inner; ++k) {
        sum += at(a, i, k) * at(b, k, j);
      }
      double& target = c[i * c_stride + j];
      // beta 0 must not read C: it may hold anything.
      target = scale.beta == 0 ? scale.alpha * sum : scale.alpha * sum + scale.beta * target;
    }
  }
}

}  // namespace gpt
