// SPDX-License-Identifier: Apache-2.0
#include "layers.hpp"

#include <algorithm>
#include <cmath>

#include "matmul.hpp"
#include "vector_math.hpp"

namespace gpt {
namespace {

std::int64_t extent(std::uint64_t count) { return static_cast<std::int64_t>(count); }

// x[0 .. count) becomes softmax(x); returns log(sum of exp(x)), the normaliser.
template <class Real>
Real softmax(std::uint64_t count, Real* x) {
  const Real largest = lane_maximum(count, x);
  for (std::uint64_t i = 0; i < count; ++i) {
    x[i] = exponential(x[i] - largest);
  }
  const Real sum = lane_sum<Real>(count, [x](std::uint64_t i) { return x[i]; });
  const Real factor = 1 / sum;
  for (std::uint64_t i = 0; i < count; ++i) {
    x[i] *= factor;
  }
  return largest + std::log(sum);
}

}  // namespace

template <class Real>
void add(std::uint64_t count, const Real* x, Real* y) {
  for (std::uint64_t i = 0; i < count; ++i) {
    y[i] += x[i];
  }
}

// ---- linear ----

template <class Real>
void linear_forward(linear_shape shape, linear_tensors<const Real*> parameters, const Real* x,
                    Real* y) {
  for (std::uint64_t row = 0; row < shape.rows; ++row) {
    std::copy_n(parameters.bias, shape.outputs, y + row * shape.outputs);
  }
  const std::int64_t inputs = extent(shape.inputs);
  const std::int64_t outputs = extent(shape.outputs);
  matmul({extent(shape.rows), outputs, inputs}, matrix<Real>{x, inputs},
         transposed(matrix<Real>{parameters.weight, inputs}), y, outputs, {1, 1});
}

template <class Real>
void linear_backward(linear_shape shape, linear_tensors<const Real*> parameters,
                     linear_tensors<Real*> gradients, const Real* x, const Real* dy, Real* dx) {
  const std::int64_t rows = extent(shape.rows);
  const std::int64_t inputs = extent(shape.inputs);
  const std::int64_t outputs = extent(shape.outputs);
  // dx = dy * weight
  matmul({rows, inputs, outputs}, matrix<Real>{dy, outputs},
         matrix<Real>{parameters.weight, inputs}, dx, inputs);
  // dweight += dy^T * x
  matmul({outputs, inputs, rows}, transposed(matrix<Real>{dy, outputs}), matrix<Real>{x, inputs},
         gradients.weight, inputs, {1, 1});
  for (std::uint64_t row = 0; row < shape.rows; ++row) {
    add(shape.outputs, dy + row * shape.outputs, gradients.bias);
  }
}

// ---- layer norm ----

template <class Real>
void layer_norm_forward(row_shape shape, layer_norm_tensors<const Real*> parameters,
                        layer_norm_statistics<Real*> statistics, const Real* x, Real* y) {
  constexpr Real epsilon = static_cast<Real>(1e-5);  // keeps a constant row finite
  const Real width = static_cast<Real>(shape.width);
  for (std::uint64_t row = 0; row < shape.rows; ++row, x += shape.width, y += shape.width) {
    const Real mean = lane_sum<Real>(shape.width, [x](auto i) { return x[i]; }) / width;
    const Real variance =
        lane_sum<Real>(shape.width, [x, mean](auto i) { return (x[i] - mean) * (x[i] - mean); }) /
        width;
    const Real inverse_deviation = 1 / std::sqrt(variance + epsilon);
    for (std::uint64_t i = 0; i < shape.width; ++i) {
      y[i] = (x[i] - mean) * inverse_deviation * parameters.weight[i] + parameters.bias[i];
    }
    statistics.mean[row] = mean;
    statistics.inverse_deviation[row] = inverse_deviation;
  }
}

template <class Real>
void layer_norm_backward(row_shape shape, layer_norm_tensors<const Real*> parameters,
                         layer_norm_tensors<Real*> gradients,
                         layer_norm_statistics<const Real*> statistics, const Real* x,
                         const Real* dy, Real* dx) {
  const Real width = static_cast<Real>(shape.width);
  const Real* const weight = parameters.weight;
  for (std::uint64_t row = 0; row < shape.rows;
       ++row, x += shape.width, dy += shape.width, dx += shape.width) {
    const Real mean = statistics.mean[row];
    const Real inverse_deviation = statistics.inverse_deviation[row];
    // With n = (x - mean) / deviation and dn = dy * weight:
    // dx = (dn - mean(dn) - n * mean(dn * n)) / deviation
    const Real mean_dn =
        lane_sum<Real>(shape.width, [=](auto i) { return dy[i] * weight[i]; }) / width;
    const Real mean_dn_n = lane_sum<Real>(shape.width, [=](auto i) {
      return dy[i] * weight[i] * ((x[i] - mean) * inverse_deviation);
    }) / width;
    for (std::uint64_t i = 0; i < shape.width; ++i) {
      const Real n = (x[i] - mean) * inverse_deviation;
      gradients.weight[i] += dy[i] * n;
      gradients.bias[i] += dy[i];
      dx[i] += (dy[i] * weight[i] - mean_dn - n * mean_dn_n) * inverse_deviation;
    }
  }
}

// ---- GELU ----
// 0.5 * x * (1 + tanh(u)) with u = sqrt(2 / pi) * (x + 0.044715 * x^3), written as
// x * sigmoid(2 * u), which is the same function and needs one exponential.

namespace {
constexpr double gelu_scale = 1.5957691216057308;  // 2 * sqrt(2 / pi)
constexpr double gelu_cubic = 0.044715;
}  // namespace

template <class Real>
void gelu_forward(std::uint64_t count, const Real* x, Real* y) {
  constexpr Real scale = static_cast<Real>(gelu_scale);
  constexpr Real cubic = static_cast<Real>(gelu_cubic);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Real v = x[i];
    y[i] = v / (1 + exponential(-scale * (v + cubic * v * v * v)));
  }
}

template <class Real>
void gelu_backward(std::uint64_t count, const Real* x, Real* gradient) {
  constexpr Real scale = static_cast<Real>(gelu_scale);
  constexpr Real cubic = static_cast<Real>(gelu_cubic);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Real v = x[i];
    const Real sigmoid = 1 / (1 + exponential(-scale * (v + cubic * v * v * v)));
    const Real slope = scale * (1 + 3 * cubic * v * v);
    gradient[i] *= sigmoid + v * sigmoid * (1 - sigmoid) * slope;
  }
}

// ---- attention ----

namespace {

// Where one head of one sequence lies: rows `length`, inside matrices with more columns.
template <class Real>
struct head_view {
  const Real* query;  // [length, head_width], stride 3 * width
  const Real* key;
  const Real* value;
};

template <class Real>
head_view<Real> view_of(attention_shape shape, const Real* qkv, std::uint64_t sequence,
                        std::uint64_t head) {
  const Real* const first =
      qkv + sequence * shape.length * 3 * shape.width() + head * shape.head_width;
  return {first, first + shape.width(), first + 2 * shape.width()};
}

template <class Real>
Real score_scale(attention_shape shape) {
  return 1 / std::sqrt(static_cast<Real>(shape.head_width));
}

// Row t attends to positions 0 .. t: softmax there, zero behind.
template <class Real>
void causal_softmax(std::uint64_t length, Real* scores) {
  for (std::uint64_t t = 0; t < length; ++t, scores += length) {
    softmax(t + 1, scores);
    std::fill(scores + t + 1, scores + length, Real{0});
  }
}

// Turns dprobabilities into dscores in place: ds = p * (dp - sum(dp * p)), zero behind t.
template <class Real>
void causal_softmax_backward(std::uint64_t length, const Real* probabilities, Real* gradient) {
  for (std::uint64_t t = 0; t < length; ++t, probabilities += length, gradient += length) {
    const Real* const p = probabilities;
    Real* const dp = gradient;
    const Real weighted = lane_sum<Real>(t + 1, [=](auto i) { return dp[i] * p[i]; });
    for (std::uint64_t i = 0; i <= t; ++i) {
      dp[i] = p[i] * (dp[i] - weighted);
    }
    std::fill(dp + t + 1, dp + length, Real{0});
  }
}

}  // namespace

template <class Real>
void attention_forward(attention_shape shape, const Real* qkv, Real* probabilities, Real* y) {
  const std::int64_t length = extent(shape.length);
  const std::int64_t head_width = extent(shape.head_width);
  const std::int64_t width = extent(shape.width());
  const std::int64_t stride = 3 * width;
  for (std::uint64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (std::uint64_t head = 0; head < shape.heads; ++head) {
      const auto [query, key, value] = view_of(shape, qkv, sequence, head);
      matmul({length, length, head_width}, matrix<Real>{query, stride},
             transposed(matrix<Real>{key, stride}), probabilities, length,
             {score_scale<Real>(shape), 0});
      causal_softmax(shape.length, probabilities);
      Real* const out = y + sequence * shape.length * shape.width() + head * shape.head_width;
      matmul({length, head_width, length}, matrix<Real>{probabilities, length},
             matrix<Real>{value, stride}, out, width);
      probabilities += shape.length * shape.length;
    }
  }
}

template <class Real>
void attention_backward(attention_shape shape, const Real* qkv, const Real* probabilities,
                        const Real* dy, Real* scores, Real* dqkv) {
  const std::int64_t length = extent(shape.length);
  const std::int64_t head_width = extent(shape.head_width);
  const std::int64_t width = extent(shape.width());
  const std::int64_t stride = 3 * width;
  const product_scale<Real> scale{score_scale<Real>(shape), 0};
  for (std::uint64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (std::uint64_t head = 0; head < shape.heads; ++head) {
      const auto [query, key, value] = view_of(shape, qkv, sequence, head);
      const std::uint64_t row = sequence * shape.length;
      const matrix<Real> dout{dy + row * shape.width() + head * shape.head_width, width};
      Real* const dquery = dqkv + row * 3 * shape.width() + head * shape.head_width;
      Real* const dkey = dquery + shape.width();
      Real* const dvalue = dkey + shape.width();
      // dvalue = P^T * dy, dP = dy * value^T
      matmul({length, head_width, length}, transposed(matrix<Real>{probabilities, length}), dout,
             dvalue, stride);
      matmul({length, length, head_width}, dout, transposed(matrix<Real>{value, stride}), scores,
             length);
      causal_softmax_backward(shape.length, probabilities, scores);
      // dquery = scale * dS * key, dkey = scale * dS^T * query
      matmul({length, head_width, length}, matrix<Real>{scores, length},
             matrix<Real>{key, stride}, dquery, stride, scale);
      matmul({length, head_width, length}, transposed(matrix<Real>{scores, length}),
             matrix<Real>{query, stride}, dkey, stride, scale);
      probabilities += shape.length * shape.length;
    }
  }
}

// ---- cross entropy ----

template <class Real>
void cross_entropy_forward(row_shape shape, const std::uint8_t* targets, Real* logits,
                           Real* losses) {
  for (std::uint64_t row = 0; row < shape.rows; ++row, logits += shape.width) {
    const Real target_logit = logits[targets[row]];
    losses[row] = softmax(shape.width, logits) - target_logit;
  }
}

template <class Real>
void cross_entropy_backward(row_shape shape, const std::uint8_t* targets, Real scale,
                            Real* probabilities) {
  for (std::uint64_t row = 0; row < shape.rows; ++row, probabilities += shape.width) {
    probabilities[targets[row]] -= 1;
    for (std::uint64_t i = 0; i < shape.width; ++i) {
      probabilities[i] *= scale;
    }
  }
}

// ---- the two element types ----

template void add(std::uint64_t, const float*, float*);
template void linear_forward(linear_shape, linear_tensors<const float*>, const float*, float*);
template void linear_backward(linear_shape, linear_tensors<const float*>, linear_tensors<float*>,
                              const float*, const float*, float*);
template void layer_norm_forward(row_shape, layer_norm_tensors<const float*>,
                                 layer_norm_statistics<float*>, const float*, float*);
template void layer_norm_backward(row_shape, layer_norm_tensors<const float*>,
                                  layer_norm_tensors<float*>, layer_norm_statistics<const float*>,
                                  const float*, const float*, float*);
template void gelu_forward(std::uint64_t, const float*, float*);
template void gelu_backward(std::uint64_t, const float*, float*);
template void attention_forward(attention_shape, const float*, float*, float*);
template void attention_backward(attention_shape, const float*, const float*, const float*, float*,
                                 float*);
template void cross_entropy_forward(row_shape, const std::uint8_t*, float*, float*);
template void cross_entropy_backward(row_shape, const std::uint8_t*, float, float*);

template void add(std::uint64_t, const double*, double*);
template void linear_forward(linear_shape, linear_tensors<const double*>, const double*, double*);
template void linear_backward(linear_shape, linear_tensors<const double*>, linear_tensors<double*>,
                              const double*, const double*, double*);
template void layer_norm_forward(row_shape, layer_norm_tensors<const double*>,
                                 layer_norm_statistics<double*>, const double*, double*);
template void layer_norm_backward(row_shape, layer_norm_tensors<const double*>,
                                  layer_norm_tensors<double*>, layer_norm_statistics<const double*>,
                                  const double*, const double*, double*);
template void gelu_forward(std::uint64_t, const double*, double*);
template void gelu_backward(std::uint64_t, const double*, double*);
template void attention_forward(attention_shape, const double*, double*, double*);
template void attention_backward(attention_shape, const double*, const double*, const double*,
                                 double*, double*);
template void cross_entropy_forward(row_shape, const std::uint8_t*, double*, double*);
template void cross_entropy_backward(row_shape, const std::uint8_t*, double, double*);

}  // namespace gpt
