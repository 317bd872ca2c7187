// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "matmul.hpp"
#include "vector_math.hpp"

namespace gpt {
namespace {

template <class Pointer>
void require_count(std::span<const Pointer> pointers, std::size_t tensors, const char* unit) {
  if (pointers.size() != tensors) {
    throw std::out_of_range("unit " + std::string(unit) + " has " + std::to_string(tensors) +
                            " tensors, not " + std::to_string(pointers.size()));
  }
}

template <class Real>
void require_bytes(std::span<const std::uint8_t> bytes, const activations<Real>& state) {
  if (bytes.size() != state.rows()) {
    throw std::invalid_argument("model: " + std::to_string(bytes.size()) +
                                " bytes given for batch " + std::to_string(state.batch) +
                                " and length " + std::to_string(state.length));
  }
  const std::uint8_t largest = *std::max_element(bytes.begin(), bytes.end());
  if (largest >= state.model.vocabulary) {
    throw std::invalid_argument("model: byte " + std::to_string(largest) +
                                " given, the vocabulary has " +
                                std::to_string(state.model.vocabulary));
  }
}

std::int64_t extent(std::uint64_t count) { return static_cast<std::int64_t>(count); }

template <class Real>
row_shape rows_of(const activations<Real>& state) {
  return {state.rows(), state.model.width};
}

template <class Real>
attention_shape attention_of(const activations<Real>& state) {
  return {state.batch, state.length, state.model.heads, state.model.head_width()};
}

}  // namespace

// ---- pointers ----

template <class Pointer>
embedding_tensors<Pointer> embedding_from(std::span<const Pointer> pointers) {
  require_count(pointers, 2, "embedding");
  return {pointers[0], pointers[1]};
}

template <class Pointer>
block_tensors<Pointer> block_from(std::span<const Pointer> p) {
  require_count(p, 12, "block");
  return {{p[0], p[1]}, {p[2], p[3]}, {p[4], p[5]}, {p[6], p[7]}, {p[8], p[9]}, {p[10], p[11]}};
}

template <class Pointer>
final_tensors<Pointer> final_from(std::span<const Pointer> pointers) {
  require_count(pointers, 2, "final");
  return {{pointers[0], pointers[1]}};
}

// ---- memory ----

template <class Real>
activations<Real>::activations(const configuration& sizes, std::uint64_t batch_size,
                               std::uint64_t sequence_length)
    : model(sizes), batch(batch_size), length(sequence_length) {
  if (batch == 0 || length == 0 || length > model.context) {
    throw std::invalid_argument("activations: batch " + std::to_string(batch) + " and length " +
                                std::to_string(length) + " must be positive, length at most " +
                                std::to_string(model.context));
  }
  const std::uint64_t row_count = rows();
  const std::uint64_t width = model.width;
  residual.assign(model.layers + 1, std::vector<Real>(row_count * width));
  blocks.resize(model.layers);
  for (block_activations<Real>& block : blocks) {
    for (auto* per_row : {&block.ln1_mean, &block.ln1_inverse_deviation, &block.ln2_mean,
                          &block.ln2_inverse_deviation}) {
      per_row->resize(row_count);
    }
    for (auto* narrow : {&block.ln1, &block.attention, &block.middle, &block.ln2}) {
      narrow->resize(row_count * width);
    }
    block.qkv.resize(row_count * 3 * width);
    block.fc.resize(row_count * 4 * width);
    block.gelu.resize(row_count * 4 * width);
    block.probabilities.resize(batch * model.heads * length * length);
  }
  final_mean.resize(row_count);
  final_inverse_deviation.resize(row_count);
  final_ln.resize(row_count * width);
  probabilities.resize(row_count * model.vocabulary);
  losses.resize(row_count);
  gradient.resize(row_count * width);
  branch_gradient.resize(row_count * width);
  wide_gradient.resize(row_count * 4 * width);
  scores_gradient.resize(length * length);
}

// ---- forward ----

template <class Real>
void embedding_forward(embedding_tensors<const Real*> parameters,
                       std::span<const std::uint8_t> tokens, activations<Real>& state) {
  require_bytes(tokens, state);
  const std::uint64_t width = state.model.width;
  Real* x = state.residual[0].data();
  for (std::uint64_t row = 0; row < state.rows(); ++row, x += width) {
    const Real* const token = parameters.wte + tokens[row] * width;
    const Real* const position = parameters.wpe + (row % state.length) * width;
    for (std::uint64_t i = 0; i < width; ++i) {
      x[i] = token[i] + position[i];
    }
  }
}

template <class Real>
void block_forward(std::uint64_t block, block_tensors<const Real*> parameters,
                   activations<Real>& state) {
  block_activations<Real>& kept = state.blocks[block];
  const row_shape rows = rows_of(state);
  const std::uint64_t width = rows.width;
  const Real* const x = state.residual[block].data();
  Real* const out = state.residual[block + 1].data();

  // middle = x + projection(attention(qkv(ln1(x))))
  layer_norm_forward<Real>(rows, parameters.ln1,
                           {kept.ln1_mean.data(), kept.ln1_inverse_deviation.data()}, x,
                           kept.ln1.data());
  linear_forward({rows.rows, width, 3 * width}, parameters.qkv, kept.ln1.data(), kept.qkv.data());
  attention_forward(attention_of(state), kept.qkv.data(), kept.probabilities.data(),
                    kept.attention.data());
  linear_forward({rows.rows, width, width}, parameters.projection, kept.attention.data(),
                 kept.middle.data());
  add(rows.rows * width, x, kept.middle.data());

  // out = middle + fc_projection(gelu(fc(ln2(middle))))
  layer_norm_forward<Real>(rows, parameters.ln2,
                           {kept.ln2_mean.data(), kept.ln2_inverse_deviation.data()},
                           kept.middle.data(), kept.ln2.data());
  linear_forward({rows.rows, width, 4 * width}, parameters.fc, kept.ln2.data(), kept.fc.data());
  gelu_forward(rows.rows * 4 * width, kept.fc.data(), kept.gelu.data());
  linear_forward({rows.rows, 4 * width, width}, parameters.fc_projection, kept.gelu.data(), out);
  add(rows.rows * width, kept.middle.data(), out);
}

template <class Real>
void final_forward(final_tensors<const Real*> parameters, activations<Real>& state) {
  layer_norm_forward<Real>(rows_of(state), parameters.ln,
                           {state.final_mean.data(), state.final_inverse_deviation.data()},
                           state.residual.back().data(), state.final_ln.data());
}

template <class Real>
double head_forward(embedding_tensors<const Real*> parameters,
                    std::span<const std::uint8_t> targets, activations<Real>& state) {
  require_bytes(targets, state);
  const std::int64_t width = extent(state.model.width);
  const std::int64_t vocabulary = extent(state.model.vocabulary);
  // logits = final_ln * wte^T
  matmul({extent(state.rows()), vocabulary, width}, matrix<Real>{state.final_ln.data(), width},
         transposed(matrix<Real>{parameters.wte, width}), state.probabilities.data(), vocabulary);
  cross_entropy_forward({state.rows(), state.model.vocabulary}, targets.data(),
                        state.probabilities.data(), state.losses.data());
  const double sum = lane_sum<double>(
      state.rows(), [&](std::uint64_t i) { return static_cast<double>(state.losses[i]); });
  return sum / static_cast<double>(state.rows());
}

template <class Real>
void head_logits(embedding_tensors<const Real*> parameters, const activations<Real>& state,
                 std::uint64_t row, std::span<Real> logits) {
  const std::uint64_t width = state.model.width;
  const Real* const x = state.final_ln.data() + row * width;
  for (std::uint64_t token = 0; token < logits.size(); ++token) {
    const Real* const embedding = parameters.wte + token * width;
    logits[token] = lane_sum<Real>(width, [=](std::uint64_t i) { return x[i] * embedding[i]; });
  }
}

// ---- backward ----

template <class Real>
void head_backward(embedding_tensors<const Real*> parameters, embedding_tensors<Real*> gradients,
                   std::span<const std::uint8_t> targets, Real loss_scale,
                   activations<Real>& state) {
  require_bytes(targets, state);
  const std::int64_t rows = extent(state.rows());
  const std::int64_t width = extent(state.model.width);
  const std::int64_t vocabulary = extent(state.model.vocabulary);
  cross_entropy_backward({state.rows(), state.model.vocabulary}, targets.data(),
                         loss_scale / static_cast<Real>(state.rows()),
                         state.probabilities.data());
  const matrix<Real> dlogits{state.probabilities.data(), vocabulary};
  // dfinal_ln = dlogits * wte
  matmul({rows, width, vocabulary}, dlogits, matrix<Real>{parameters.wte, width},
         state.branch_gradient.data(), width);
  // dwte += dlogits^T * final_ln
  matmul({vocabulary, width, rows}, transposed(dlogits),
         matrix<Real>{state.final_ln.data(), width}, gradients.wte, width, {1, 1});
}

template <class Real>
void final_backward(final_tensors<const Real*> parameters, final_tensors<Real*> gradients,
                    activations<Real>& state) {
  // Here the gradient of the residual stream begins.
  std::fill(state.gradient.begin(), state.gradient.end(), Real{0});
  layer_norm_backward<Real>(rows_of(state), parameters.ln, gradients.ln,
                            {state.final_mean.data(), state.final_inverse_deviation.data()},
                            state.residual.back().data(), state.branch_gradient.data(),
                            state.gradient.data());
}

template <class Real>
void block_backward(std::uint64_t block, block_tensors<const Real*> parameters,
                    block_tensors<Real*> gradients, activations<Real>& state) {
  const block_activations<Real>& kept = state.blocks[block];
  const row_shape rows = rows_of(state);
  const std::uint64_t width = rows.width;
  // On entry the gradient of the block's output, in the end that of its input.
  Real* const gradient = state.gradient.data();
  Real* const branch = state.branch_gradient.data();
  Real* const wide = state.wide_gradient.data();

  // out = middle + fc_projection(gelu(fc(ln2(middle))))
  linear_backward({rows.rows, 4 * width, width}, parameters.fc_projection,
                  gradients.fc_projection, kept.gelu.data(), gradient, wide);
  gelu_backward(rows.rows * 4 * width, kept.fc.data(), wide);
  linear_backward({rows.rows, width, 4 * width}, parameters.fc, gradients.fc, kept.ln2.data(),
                  wide, branch);
  layer_norm_backward<Real>(rows, parameters.ln2, gradients.ln2,
                            {kept.ln2_mean.data(), kept.ln2_inverse_deviation.data()},
                            kept.middle.data(), branch, gradient);

  // middle = x + projection(attention(qkv(ln1(x))))
  linear_backward({rows.rows, width, width}, parameters.projection, gradients.projection,
                  kept.attention.data(), gradient, branch);
  attention_backward(attention_of(state), kept.qkv.data(), kept.probabilities.data(), branch,
                     state.scores_gradient.data(), wide);
  linear_backward({rows.rows, width, 3 * width}, parameters.qkv, gradients.qkv, kept.ln1.data(),
                  wide, branch);
  layer_norm_backward<Real>(rows, parameters.ln1, gradients.ln1,
                            {kept.ln1_mean.data(), kept.ln1_inverse_deviation.data()},
                            state.residual[block].data(), branch, gradient);
}

template <class Real>
void embedding_backward(embedding_tensors<Real*> gradients, std::span<const std::uint8_t> tokens,
                        activations<Real>& state) {
  require_bytes(tokens, state);
  const std::uint64_t width = state.model.width;
  for (std::uint64_t row = 0; row < state.rows(); ++row) {
    const Real* const dx = state.gradient.data() + row * width;
    add(width, dx, gradients.wte + tokens[row] * width);
    add(width, dx, gradients.wpe + (row % state.length) * width);
  }
}

// ---- the two element types ----

template embedding_tensors<float*> embedding_from(std::span<float* const>);
template block_tensors<float*> block_from(std::span<float* const>);
template final_tensors<float*> final_from(std::span<float* const>);
template embedding_tensors<const float*> embedding_from(std::span<const float* const>);
template block_tensors<const float*> block_from(std::span<const float* const>);
template final_tensors<const float*> final_from(std::span<const float* const>);
template struct activations<float>;
template void embedding_forward(embedding_tensors<const float*>, std::span<const std::uint8_t>,
                                activations<float>&);
template void block_forward(std::uint64_t, block_tensors<const float*>, activations<float>&);
template void final_forward(final_tensors<const float*>, activations<float>&);
template double head_forward(embedding_tensors<const float*>, std::span<const std::uint8_t>,
                             activations<float>&);
template void head_logits(embedding_tensors<const float*>, const activations<float>&,
                          std::uint64_t, std::span<float>);
template void head_backward(embedding_tensors<const float*>, embedding_tensors<float*>,
                            std::span<const std::uint8_t>, float, activations<float>&);
template void final_backward(final_tensors<const float*>, final_tensors<float*>,
                             activations<float>&);
template void block_backward(std::uint64_t, block_tensors<const float*>, block_tensors<float*>,
                             activations<float>&);
template void embedding_backward(embedding_tensors<float*>, std::span<const std::uint8_t>,
                                 activations<float>&);

template embedding_tensors<double*> embedding_from(std::span<double* const>);
template block_tensors<double*> block_from(std::span<double* const>);
template final_tensors<double*> final_from(std::span<double* const>);
template embedding_tensors<const double*> embedding_from(std::span<const double* const>);
template block_tensors<const double*> block_from(std::span<const double* const>);
template final_tensors<const double*> final_from(std::span<const double* const>);
template struct activations<double>;
template void embedding_forward(embedding_tensors<const double*>, std::span<const std::uint8_t>,
                                activations<double>&);
template void block_forward(std::uint64_t, block_tensors<const double*>, activations<double>&);
template void final_forward(final_tensors<const double*>, activations<double>&);
template double head_forward(embedding_tensors<const double*>, std::span<const std::uint8_t>,
                             activations<double>&);
template void head_logits(embedding_tensors<const double*>, const activations<double>&,
                          std::uint64_t, std::span<double>);
template void head_backward(embedding_tensors<const double*>, embedding_tensors<double*>,
                            std::span<const std::uint8_t>, double, activations<double>&);
template void final_backward(final_tensors<const double*>, final_tensors<double*>,
                             activations<double>&);
template void block_backward(std::uint64_t, block_tensors<const double*>, block_tensors<double*>,
                             activations<double>&);
template void embedding_backward(embedding_tensors<double*>, std::span<const std::uint8_t>,
                                 activations<double>&);

}  // namespace gpt
