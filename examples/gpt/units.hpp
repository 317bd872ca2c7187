// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

/// Sizes of the model; a token is a byte, so the vocabulary always has 256 entries.
struct configuration {
  std::uint64_t layers = 2;
  std::uint64_t width = 144;
  std::uint64_t heads = 4;
  std::uint64_t context = 64;
  std::uint64_t vocabulary = 256;

  constexpr std::uint64_t head_width() const { return width / heads; }
};

/// How a tensor starts.
enum class initialization {
  zeros,
  ones,
  normal,           ///< standard deviation 0.02
  residual_normal,  ///< the same divided by sqrt(2 * layers): these add to the residual stream
};

/// A tensor of a unit: what a layout, an optimizer group and the initialisation need to know.
struct tensor_description {
  std::string name;
  std::vector<std::uint64_t> shape;
  bool decays;  ///< weight decay: matrices of products yes; biases, layer norms, embeddings no
  initialization start;

  std::uint64_t elements() const;
};

/// Tensors that are needed together: an embedding, a block.
struct unit_description {
  std::string name;
  std::vector<tensor_description> tensors;

  std::uint64_t elements() const;
};

/// All units in the order of a forward traversal: embedding, block0, block1, ..., final.
/// The tied head uses the embedding once more, after final.
/// Throws: std::invalid_argument with the values when the sizes do not fit each other.
std::vector<unit_description> describe_units(const configuration& model);

/// Number of trainable elements, the tied embedding once.
std::uint64_t parameter_count(const configuration& model);

/// A 64-bit key of a tensor, from the names alone: the same for every N, stage and unit size.
std::uint64_t tensor_key(std::string_view unit, std::string_view tensor);

/// The starting value of element `index` of the tensor with this key.
float initial_value(const configuration& model, initialization start, std::uint64_t key,
                    std::uint64_t index, std::uint64_t seed);

}  // namespace gpt
