// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <zero/cuda.hpp>
#include <zero/layout.hpp>
#include <zero/scopes.hpp>

#include "layers.hpp"

namespace cuda_example {

/// Sizes in elements.
struct network_sizes {
  std::uint64_t context = 8;     ///< bytes that the next one is predicted from
  std::uint64_t embedding = 16;  ///< per byte
  std::uint64_t width = 128;
  std::uint64_t hidden = 256;
  std::uint64_t blocks = 3;
  std::uint64_t batch = 64;  ///< rows of one rank
  static constexpr std::uint64_t classes = 256;

  linear_shape entry() const { return {batch, context * embedding, width}; }
  linear_shape up() const { return {batch, width, hidden}; }
  linear_shape down() const { return {batch, hidden, width}; }
  linear_shape head() const { return {batch, width, classes}; }
};

/// Everything that is no parameter: the arrays of one step, one after another in one block of
/// device memory, at the same addresses in every step.
class activations {
 public:
  struct block {
    float* sum;     ///< [batch, hidden], before the GELU
    float* hidden;  ///< [batch, hidden]
    float* output;  ///< [batch, width]
  };

  explicit activations(const network_sizes& sizes)
      : memory_(zero::current_cuda_device()), bytes_(place(sizes, nullptr)) {
    base_ = memory_.allocate(bytes_, alignment);
    place(sizes, static_cast<std::byte*>(base_));
  }
  activations(const activations&) = delete;
  activations& operator=(const activations&) = delete;
  ~activations() { memory_.deallocate(base_, bytes_, alignment); }

  std::uint8_t* contexts = nullptr;  ///< [batch, context]
  std::uint8_t* targets = nullptr;   ///< [batch]
  float* embedded = nullptr;         ///< [batch, context * embedding]
  float* entry = nullptr;            ///< [batch, width]
  std::vector<block> blocks;
  float* logits = nullptr;             ///< [batch, classes]
  float* losses = nullptr;             ///< [batch], in nats
  float* logits_gradient = nullptr;    ///< like logits
  float* stream_gradient = nullptr;    ///< [batch, width], of the sum that runs through all blocks
  float* hidden_gradient = nullptr;    ///< [batch, hidden]
  float* embedded_gradient = nullptr;  ///< like embedded

 private:
  static constexpr std::uint64_t alignment = 256;

  /// Sets all pointers, and returns how many bytes they take.
  std::uint64_t place(const network_sizes& s, std::byte* base) {
    std::uint64_t used = 0;
    const auto take = [&]<class T>(T*& pointer, std::uint64_t count) {
      pointer = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
      used += (count * sizeof(T) + alignment - 1) / alignment * alignment;
    };
    take(contexts, s.batch * s.context);
    take(targets, s.batch);
    take(embedded, s.batch * s.context * s.embedding);
    take(entry, s.batch * s.width);
    blocks.resize(static_cast<std::size_t>(s.blocks));
    for (block& b : blocks) {
      take(b.sum, s.batch * s.hidden);
      take(b.hidden, s.batch * s.hidden);
      take(b.output, s.batch * s.width);
    }
    take(logits, s.batch * s.classes);
    take(losses, s.batch);
    take(logits_gradient, s.batch * s.classes);
    take(stream_gradient, s.batch * s.width);
    take(hidden_gradient, s.batch * s.hidden);
    take(embedded_gradient, s.batch * s.context * s.embedding);
    return used;
  }

  zero::cuda_memory memory_;
  std::uint64_t bytes_;
  void* base_ = nullptr;
};

/// A language model over bytes: the embeddings of the last few bytes, a linear map of them, blocks
/// that each add down(gelu(up(x))) to x, and a linear head. One unit each for entry, blocks, head.
class network {
 public:
  explicit network(const network_sizes& sizes)
      : sizes_(sizes), layout_({.alignment_bytes = zero::cuda_memory::alignment_bytes}) {
    const auto entry = layout_.add_unit("entry");
    table_ = layout_.add_tensor(entry, "table", {sizes.classes, sizes.embedding}, zero::no_decay);
    entry_ = add_linear(entry, "entry", sizes.entry());
    for (std::uint64_t b = 0; b < sizes.blocks; ++b) {
      const std::string name = "block" + std::to_string(b);
      const auto unit = layout_.add_unit(name);
      blocks_.push_back({add_linear(unit, name + ".up", sizes.up()),
                         add_linear(unit, name + ".down", sizes.down())});
    }
    head_ = add_linear(layout_.add_unit("head"), "head", sizes.head());
  }

  const zero::model_layout& layout() const { return layout_; }
  const network_sizes& sizes() const { return sizes_; }

  /// What a unit of the schedule computes, from its parameters in an open scope.
  template <class Scope>
  void forward(zero::unit_id unit, const Scope& scope, activations& a, cudaStream_t stream) const {
    using functions = layers_of<Scope>;
    if (unit == first()) {
      functions::embed_forward(a.embedded, scope.parameters(table_).data(), a.contexts,
                               sizes_.batch * sizes_.context, sizes_.embedding, stream);
      linear(scope, a.entry, a.embedded, entry_, nullptr, sizes_.entry(), stream);
    } else if (unit == last()) {
      linear(scope, a.logits, input_of(unit, a), head_, nullptr, sizes_.head(), stream);
      functions::cross_entropy(a.losses, a.logits_gradient, a.logits, a.targets, sizes_.batch,
                               sizes_.classes, stream);
    } else {
      const block& b = blocks_[index_of(unit)];
      const activations::block& now = a.blocks[index_of(unit)];
      const float* const x = input_of(unit, a);
      linear(scope, now.sum, x, b.up, nullptr, sizes_.up(), stream);
      functions::gelu_forward(now.hidden, now.sum, sizes_.batch * sizes_.hidden, stream);
      linear(scope, now.output, now.hidden, b.down, x, sizes_.down(), stream);
    }
  }

  /// Writes the gradients of the unit, and hands the gradient of its input on.
  template <class Scope>
  void backward(zero::unit_id unit, const Scope& scope, activations& a, cudaStream_t stream) const {
    using functions = layers_of<Scope>;
    float* const dx = a.stream_gradient;
    if (unit == first()) {
      linear_parameters(scope, entry_, dx, a.embedded, sizes_.entry(), stream);
      functions::linear_backward_input(a.embedded_gradient, false, dx,
                                       scope.parameters(entry_.weight).data(), sizes_.entry(),
                                       stream);
      functions::embed_backward(scope.gradients(table_, zero::overwrite).data(), sizes_.classes,
                                a.embedded_gradient, a.contexts, sizes_.batch * sizes_.context,
                                sizes_.embedding, stream);
    } else if (unit == last()) {
      linear_parameters(scope, head_, a.logits_gradient, input_of(unit, a), sizes_.head(), stream);
      functions::linear_backward_input(dx, false, a.logits_gradient,
                                       scope.parameters(head_.weight).data(), sizes_.head(),
                                       stream);
    } else {
      const block& b = blocks_[index_of(unit)];
      const activations::block& then = a.blocks[index_of(unit)];
      linear_parameters(scope, b.down, dx, then.hidden, sizes_.down(), stream);
      functions::linear_backward_input(a.hidden_gradient, false, dx,
                                       scope.parameters(b.down.weight).data(), sizes_.down(),
                                       stream);
      functions::gelu_backward(a.hidden_gradient, a.hidden_gradient, then.sum,
                               sizes_.batch * sizes_.hidden, stream);
      linear_parameters(scope, b.up, a.hidden_gradient, input_of(unit, a), sizes_.up(), stream);
      // The block added to its input, so what flows past it stays.
      functions::linear_backward_input(dx, true, a.hidden_gradient,
                                       scope.parameters(b.up.weight).data(), sizes_.up(), stream);
    }
  }

  /// Weights like 1 / sqrt(inputs), by name and position; biases are 0.
  static void initial_values(const zero::tensor_info& tensor, std::uint64_t first,
                             std::span<float> values) {
    const bool is_bias = tensor.shape.size() == 1;
    const double scale = is_bias ? 0 : 1 / std::sqrt(static_cast<double>(tensor.shape.back()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(scale * (2 * draw(tensor.key, first + i) - 1));
    }
  }

  /// A number in [0, 1) that depends on nothing but its place (SplitMix64).
  static double draw(std::uint64_t key, std::uint64_t index) {
    std::uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1p-53;
  }

 private:
  struct linear_map {
    zero::tensor_id weight;
    zero::tensor_id bias;
  };
  struct block {
    linear_map up;
    linear_map down;
  };
  template <class Scope>
  using layers_of = layers<typename Scope::parameter_type>;

  linear_map add_linear(zero::unit_id unit, const std::string& name, const linear_shape& shape) {
    return {layout_.add_tensor(unit, name + ".weight", {shape.outputs, shape.inputs}),
            layout_.add_tensor(unit, name + ".bias", {shape.outputs}, zero::no_decay)};
  }

  zero::unit_id first() const { return {0}; }
  zero::unit_id last() const { return {static_cast<std::uint32_t>(blocks_.size() + 1)}; }
  static std::size_t index_of(zero::unit_id block) { return block.value - 1; }

  /// [batch, width]: what the unit before has left, for blocks and head.
  static const float* input_of(zero::unit_id unit, const activations& a) {
    return unit.value == 1 ? a.entry : a.blocks[index_of(unit) - 1].output;
  }

  template <class Scope>
  static void linear(const Scope& scope, float* y, const float* x, const linear_map& map,
                     const float* residual, const linear_shape& shape, cudaStream_t stream) {
    layers_of<Scope>::linear_forward(y, x, scope.parameters(map.weight).data(),
                                     scope.parameters(map.bias).data(), residual, shape, stream);
  }

  template <class Scope>
  static void linear_parameters(const Scope& scope, const linear_map& map, const float* dy,
                                const float* x, const linear_shape& shape, cudaStream_t stream) {
    layers_of<Scope>::linear_backward_parameters(
        scope.gradients(map.weight, zero::overwrite).data(),
        scope.gradients(map.bias, zero::overwrite).data(), dy, x, shape, stream);
  }

  network_sizes sizes_;
  zero::model_layout layout_;
  zero::tensor_id table_;
  linear_map entry_;
  std::vector<block> blocks_;
  linear_map head_;
};

}  // namespace cuda_example
