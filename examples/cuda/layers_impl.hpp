// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include <zero/config.hpp>

#include "layers.hpp"
#include "parallel_for.hpp"

// What each thread of the kernels computes: one output element, from its index.

namespace cuda_example {
namespace kernels {

/// Half of 1 + tanh(a (x + b x^3)), the usual approximation of GELU's factor.
struct gelu {
  static constexpr float a = 0.7978845608F;
  static constexpr float b = 0.044715F;
  static ZERO_HOST_DEVICE float half(float x) {
    return 0.5F * (1.0F + tanhf(a * (x + b * x * x * x)));
  }
  static ZERO_HOST_DEVICE float value(float x) { return x * half(x); }
  static ZERO_HOST_DEVICE float slope(float x) {
    const float h = half(x);
    return h + 2.0F * x * h * (1.0F - h) * a * (1.0F + 3.0F * b * x * x);
  }
};

template <class T>
struct embed_forward {
  float* y;
  const T* table;
  const std::uint8_t* token;
  std::uint64_t width;
  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const {
    y[i] = static_cast<float>(table[token[i / width] * width + i % width]);
  }
};

template <class T>
struct linear_forward {
  float* y;
  const float* x;
  const T* weight;
  const T* bias;
  const float* residual;
  linear_shape shape;
  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float* const x_row = x + i / shape.outputs * shape.inputs;
    const T* const weight_row = weight + i % shape.outputs * shape.inputs;
    float sum = static_cast<float>(bias[i % shape.outputs]);
    for (std::uint64_t k = 0; k < shape.inputs; ++k) {
      sum += x_row[k] * static_cast<float>(weight_row[k]);
    }
    y[i] = residual != nullptr ? residual[i] + sum : sum;
  }
};

struct gelu_forward {
  float* y;
  const float* x;
  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const { y[i] = gelu::value(x[i]); }
};

/// One thread for a row: a softmax over a few hundred classes.
struct cross_entropy {
  float* loss;
  float* logits_gradient;
  const float* logits;
  const std::uint8_t* target;
  std::uint64_t rows;
  std::uint64_t classes;
  ZERO_HOST_DEVICE void operator()(std::uint64_t row) const {
    const float* const z = logits + row * classes;
    float* const dz = logits_gradient + row * classes;
    float largest = z[0];
    for (std::uint64_t k = 1; k < classes; ++k) largest = z[k] > largest ? z[k] : largest;
    float sum = 0;
    for (std::uint64_t k = 0; k < classes; ++k) sum += expf(z[k] - largest);
    loss[row] = largest + logf(sum) - z[target[row]];
    for (std::uint64_t k = 0; k < classes; ++k) {
      const float probability = expf(z[k] - largest) / sum;
      dz[k] = (probability - (k == target[row] ? 1.0F : 0.0F)) / static_cast<float>(rows);
    }
  }
};

template <class T>
struct linear_backward_input {
  float* dx;
  bool adds;
  const float* dy;
  const T* weight;
  linear_shape shape;
  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float* const dy_row = dy + i / shape.inputs * shape.outputs;
    const T* const weight_column = weight + i % shape.inputs;
    float sum = adds ? dx[i] : 0.0F;
    for (std::uint64_t k = 0; k < shape.outputs; ++k) {
      sum += dy_row[k] * static_cast<float>(weight_column[k * shape.inputs]);
    }
    dx[i] = sum;
  }
};

template <class T>
struct linear_backward_weight {
  T* gradient;
  const float* dy;
  const float* x;
  linear_shape shape;
  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const {
    const float* const dy_column = dy + i / shape.inputs;
    const float* const x_column = x + i % shape.inputs;
    float sum = 0;
    for (std::uint64_t row = 0; row < shape.rows; ++row) {
      sum += dy_column[row * shape.outputs] * x_column[row * shape.inputs];
    }
    gradient[i] = T(sum);
  }
};

template <class T>
struct linear_backward_bias {
  T* gradient;
  const float* dy;
  linear_shape shape;
  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const {
    float sum = 0;
    for (std::uint64_t row = 0; row < shape.rows; ++row) sum += dy[row * shape.outputs + i];
    gradient[i] = T(sum);
  }
};

struct gelu_backward {
  float* dx;
  const float* dy;
  const float* x;
  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const { dx[i] = dy[i] * gelu::slope(x[i]); }
};

/// Looks through all tokens, where atomic additions would leave the order of the sum to chance.
template <class T>
struct embed_backward {
  T* gradient;
  const float* dy;
  const std::uint8_t* token;
  std::uint64_t tokens;
  std::uint64_t width;
  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const {
    float sum = 0;
    for (std::uint64_t t = 0; t < tokens; ++t) {
      if (token[t] == i / width) sum += dy[t * width + i % width];
    }
    gradient[i] = T(sum);
  }
};

}  // namespace kernels

template <class T>
void layers<T>::embed_forward(float* y, const T* table, const std::uint8_t* token,
                              std::uint64_t tokens, std::uint64_t width, cudaStream_t stream) {
  parallel_for(tokens * width, kernels::embed_forward<T>{y, table, token, width}, stream);
}

template <class T>
void layers<T>::linear_forward(float* y, const float* x, const T* weight, const T* bias,
                               const float* residual, const linear_shape& shape,
                               cudaStream_t stream) {
  parallel_for(shape.rows * shape.outputs,
               kernels::linear_forward<T>{y, x, weight, bias, residual, shape}, stream);
}

template <class T>
void layers<T>::gelu_forward(float* y, const float* x, std::uint64_t count, cudaStream_t stream) {
  parallel_for(count, kernels::gelu_forward{y, x}, stream);
}

template <class T>
void layers<T>::cross_entropy(float* loss, float* logits_gradient, const float* logits,
                              const std::uint8_t* target, std::uint64_t rows, std::uint64_t classes,
                              cudaStream_t stream) {
  parallel_for(rows, kernels::cross_entropy{loss, logits_gradient, logits, target, rows, classes},
               stream);
}

template <class T>
void layers<T>::linear_backward_input(float* dx, bool adds, const float* dy, const T* weight,
                                      const linear_shape& shape, cudaStream_t stream) {
  parallel_for(shape.rows * shape.inputs,
               kernels::linear_backward_input<T>{dx, adds, dy, weight, shape}, stream);
}

template <class T>
void layers<T>::linear_backward_parameters(T* weight_gradient, T* bias_gradient, const float* dy,
                                           const float* x, const linear_shape& shape,
                                           cudaStream_t stream) {
  parallel_for(shape.outputs * shape.inputs,
               kernels::linear_backward_weight<T>{weight_gradient, dy, x, shape}, stream);
  parallel_for(shape.outputs, kernels::linear_backward_bias<T>{bias_gradient, dy, shape}, stream);
}

template <class T>
void layers<T>::gelu_backward(float* dx, const float* dy, const float* x, std::uint64_t count,
                              cudaStream_t stream) {
  parallel_for(count, kernels::gelu_backward{dx, dy, x}, stream);
}

template <class T>
void layers<T>::embed_backward(T* table_gradient, std::uint64_t table_rows, const float* dy,
                               const std::uint8_t* token, std::uint64_t tokens, std::uint64_t width,
                               cudaStream_t stream) {
  parallel_for(table_rows * width,
               kernels::embed_backward<T>{table_gradient, dy, token, tokens, width}, stream);
}

}  // namespace cuda_example
