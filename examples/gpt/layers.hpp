// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The layers of a transformer, forward and backward, each on the calling thread alone.
// Every function exists for float and double. Matrices are row-major; "rows" are tokens.
// Names: `x` is an input, `y` an output, `dx` and `dy` the gradients of the loss by them.
// Weight gradients are added to what is there; `dx` is overwritten unless a comment says otherwise.
namespace gpt {

/// y = x * weight^T + bias: `rows` rows of `inputs` numbers become rows of `outputs` numbers.
struct linear_shape {
  std::uint64_t rows;
  std::uint64_t inputs;
  std::uint64_t outputs;
};

/// Weight is [outputs, inputs], bias [outputs].
template <class Pointer>
struct linear_tensors {
  Pointer weight;
  Pointer bias;
};

template <class Real>
void linear_forward(linear_shape shape, linear_tensors<const Real*> parameters, const Real* x,
                    Real* y);

template <class Real>
void linear_backward(linear_shape shape, linear_tensors<const Real*> parameters,
                     linear_tensors<Real*> gradients, const Real* x, const Real* dy, Real* dx);

/// Weight and bias are [width].
template <class Pointer>
struct layer_norm_tensors {
  Pointer weight;
  Pointer bias;
};

/// What the backward of a layer norm needs from its forward: one number per row each.
template <class Pointer>
struct layer_norm_statistics {
  Pointer mean;
  Pointer inverse_deviation;
};

struct row_shape {
  std::uint64_t rows;
  std::uint64_t width;
};

/// y = (x - mean) / deviation * weight + bias, the statistics taken over each row.
template <class Real>
void layer_norm_forward(row_shape shape, layer_norm_tensors<const Real*> parameters,
                        layer_norm_statistics<Real*> statistics, const Real* x, Real* y);

/// dx is added to: the residual path has already left its share there.
template <class Real>
void layer_norm_backward(row_shape shape, layer_norm_tensors<const Real*> parameters,
                         layer_norm_tensors<Real*> gradients,
                         layer_norm_statistics<const Real*> statistics, const Real* x,
                         const Real* dy, Real* dx);

/// The tanh form of GELU, element by element.
template <class Real>
void gelu_forward(std::uint64_t count, const Real* x, Real* y);

/// Turns dy into dx in place.
template <class Real>
void gelu_backward(std::uint64_t count, const Real* x, Real* gradient);

struct attention_shape {
  std::uint64_t batch;
  std::uint64_t length;
  std::uint64_t heads;
  std::uint64_t head_width;

  constexpr std::uint64_t width() const { return heads * head_width; }
};

/// Causal attention: qkv is [batch * length, 3 * width] (query, key, value side by side),
/// y [batch * length, width]; the probabilities [batch, heads, length, length] stay for backward.
template <class Real>
void attention_forward(attention_shape shape, const Real* qkv, Real* probabilities, Real* y);

/// dqkv is overwritten; scores is scratch of length * length.
template <class Real>
void attention_backward(attention_shape shape, const Real* qkv, const Real* probabilities,
                        const Real* dy, Real* scores, Real* dqkv);

/// Turns each row of logits into probabilities and stores each row's cross entropy (nats).
template <class Real>
void cross_entropy_forward(row_shape shape, const std::uint8_t* targets, Real* logits,
                           Real* losses);

/// Turns probabilities into d(scale * sum of the losses) / d(logits), in place.
template <class Real>
void cross_entropy_backward(row_shape shape, const std::uint8_t* targets, Real scale,
                            Real* probabilities);

/// y += x, element by element.
template <class Real>
void add(std::uint64_t count, const Real* x, Real* y);

}  // namespace gpt
