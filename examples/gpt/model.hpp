// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers.hpp"
#include "units.hpp"

// A byte-level GPT, cut into the units of describe_units(). Every function needs the parameters of
// one unit only, and only while it runs: under ZeRO stage 3 they exist just then.
//
//   forward:   embedding, block 0 .. L-1, final, head     (the head uses the embedding again)
//   backward:  head, final, block L-1 .. 0, embedding
//
// Sizes in comments: B sequences, T positions, R = B * T rows, C = width, V = vocabulary.
namespace gpt {

/// Tensors of the unit "embedding". The tied head multiplies by wte once more.
template <class Pointer>
struct embedding_tensors {
  Pointer wte;  // [V, C]
  Pointer wpe;  // [T, C]
};

/// Tensors of one block.
template <class Pointer>
struct block_tensors {
  layer_norm_tensors<Pointer> ln1;       // [C], [C]
  linear_tensors<Pointer> qkv;           // [3C, C], [3C]
  linear_tensors<Pointer> projection;    // [C, C], [C]
  layer_norm_tensors<Pointer> ln2;       // [C], [C]
  linear_tensors<Pointer> fc;            // [4C, C], [4C]
  linear_tensors<Pointer> fc_projection; // [C, 4C], [C]
};

/// Tensors of the unit "final".
template <class Pointer>
struct final_tensors {
  layer_norm_tensors<Pointer> ln;  // [C], [C]
};

/// The tensors of a unit from pointers in the order of describe_units().
/// Throws: std::out_of_range unless there are exactly as many pointers as tensors.
template <class Pointer>
embedding_tensors<Pointer> embedding_from(std::span<const Pointer> pointers);
template <class Pointer>
block_tensors<Pointer> block_from(std::span<const Pointer> pointers);
template <class Pointer>
final_tensors<Pointer> final_from(std::span<const Pointer> pointers);

/// What one block keeps from forward to backward.
template <class Real>
struct block_activations {
  std::vector<Real> ln1_mean, ln1_inverse_deviation;  // [R]
  std::vector<Real> ln1;                              // [R, C]
  std::vector<Real> qkv;                              // [R, 3C]
  std::vector<Real> probabilities;                    // [B, heads, T, T]
  std::vector<Real> attention;                        // [R, C]
  std::vector<Real> middle;                           // [R, C] residual stream after attention
  std::vector<Real> ln2_mean, ln2_inverse_deviation;  // [R]
  std::vector<Real> ln2;                              // [R, C]
  std::vector<Real> fc;                               // [R, 4C] before GELU
  std::vector<Real> gelu;                             // [R, 4C]
};

/// All memory that a forward and a backward need besides parameters and gradients.
/// Allocated once; every forward overwrites it.
template <class Real>
struct activations {
  /// Throws: std::invalid_argument when a size is zero or length exceeds the context.
  activations(const configuration& model, std::uint64_t batch, std::uint64_t length);

  std::uint64_t rows() const { return batch * length; }

  configuration model;
  std::uint64_t batch;
  std::uint64_t length;

  std::vector<std::vector<Real>> residual;  // layers + 1 times [R, C]: input of each block, result
  std::vector<block_activations<Real>> blocks;
  std::vector<Real> final_mean, final_inverse_deviation;  // [R]
  std::vector<Real> final_ln;                             // [R, C]
  std::vector<Real> probabilities;                        // [R, V]
  std::vector<Real> losses;                               // [R] nats

  // Backward only.
  std::vector<Real> gradient;         // [R, C] of the residual stream, from the end to the start
  std::vector<Real> branch_gradient;  // [R, C] inside a block
  std::vector<Real> wide_gradient;    // [R, 4C] inside a block, [R, 3C] for qkv
  std::vector<Real> scores_gradient;  // [T, T]
};

/// Tokens (and targets) are B * T bytes, sequence after sequence.
template <class Real>
void embedding_forward(embedding_tensors<const Real*> parameters,
                       std::span<const std::uint8_t> tokens, activations<Real>& state);

template <class Real>
void block_forward(std::uint64_t block, block_tensors<const Real*> parameters,
                   activations<Real>& state);

template <class Real>
void final_forward(final_tensors<const Real*> parameters, activations<Real>& state);

/// Logits by the tied embedding, then the losses; returns their mean in nats.
template <class Real>
double head_forward(embedding_tensors<const Real*> parameters,
                    std::span<const std::uint8_t> targets, activations<Real>& state);

/// The logits of one row, for sampling: V numbers.
template <class Real>
void head_logits(embedding_tensors<const Real*> parameters, const activations<Real>& state,
                 std::uint64_t row, std::span<Real> logits);

// Backward functions add to the gradients they are given: of loss_scale * (mean loss).

/// Needs head_forward before; afterwards the probabilities are used up.
template <class Real>
void head_backward(embedding_tensors<const Real*> parameters, embedding_tensors<Real*> gradients,
                   std::span<const std::uint8_t> targets, Real loss_scale,
                   activations<Real>& state);

template <class Real>
void final_backward(final_tensors<const Real*> parameters, final_tensors<Real*> gradients,
                    activations<Real>& state);

template <class Real>
void block_backward(std::uint64_t block, block_tensors<const Real*> parameters,
                    block_tensors<Real*> gradients, activations<Real>& state);

/// Needs no parameters: looking a row up is linear.
template <class Real>
void embedding_backward(embedding_tensors<Real*> gradients, std::span<const std::uint8_t> tokens,
                        activations<Real>& state);

}  // namespace gpt
