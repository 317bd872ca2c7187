// SPDX-License-Identifier: Apache-2.0
#include "units.hpp"

#include <cmath>
#include <stdexcept>

#include "counter_random.hpp"

namespace gpt {
namespace {

constexpr bool decay = true;
constexpr bool no_decay = false;

void require_consistent(const configuration& model) {
  const bool has_zero = model.layers == 0 || model.width == 0 || model.heads == 0 ||
                        model.context == 0 || model.vocabulary == 0;
  if (has_zero || model.width % model.heads != 0) {
    throw std::invalid_argument(
        "model: layers, width, heads and context must be positive and heads must divide width, "
        "not layers " + std::to_string(model.layers) + ", width " + std::to_string(model.width) +
        ", heads " + std::to_string(model.heads) + ", context " + std::to_string(model.context));
  }
}

unit_description describe_block(const configuration& model, std::uint64_t index) {
  using enum initialization;
  const std::uint64_t d = model.width;
  return {"block" + std::to_string(index),
          {{"ln1_weight", {d}, no_decay, ones},
           {"ln1_bias", {d}, no_decay, zeros},
           {"qkv_weight", {3 * d, d}, decay, normal},
           {"qkv_bias", {3 * d}, no_decay, zeros},
           {"projection_weight", {d, d}, decay, residual_normal},
           {"projection_bias", {d}, no_decay, zeros},
           {"ln2_weight", {d}, no_decay, ones},
           {"ln2_bias", {d}, no_decay, zeros},
           {"fc_weight", {4 * d, d}, decay, normal},
           {"fc_bias", {4 * d}, no_decay, zeros},
           {"fc_projection_weight", {d, 4 * d}, decay, residual_normal},
           {"fc_projection_bias", {d}, no_decay, zeros}}};
}

}  // namespace

std::uint64_t tensor_description::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t extent : shape) {
    product *= extent;
  }
  return product;
}

std::uint64_t unit_description::elements() const {
  std::uint64_t sum = 0;
  for (const tensor_description& tensor : tensors) {
    sum += tensor.elements();
  }
  return sum;
}

std::vector<unit_description> describe_units(const configuration& model) {
  using enum initialization;
  require_consistent(model);
  const std::uint64_t d = model.width;
  std::vector<unit_description> units;
  units.push_back({"embedding",
                   {{"wte", {model.vocabulary, d}, no_decay, normal},
                    {"wpe", {model.context, d}, no_decay, normal}}});
  for (std::uint64_t block = 0; block < model.layers; ++block) {
    units.push_back(describe_block(model, block));
  }
  units.push_back({"final",
                   {{"ln_weight", {d}, no_decay, ones}, {"ln_bias", {d}, no_decay, zeros}}});
  return units;
}

std::uint64_t parameter_count(const configuration& model) {
  std::uint64_t sum = 0;
  for (const unit_description& unit : describe_units(model)) {
    sum += unit.elements();
  }
  return sum;
}

std::uint64_t tensor_key(std::string_view unit, std::string_view tensor) {
  // The lengths come first, so that "a" + "bc" and "ab" + "c" differ.
  std::uint64_t key = counter_hash({unit.size(), tensor.size()});
  for (const std::string_view text : {unit, tensor}) {
    for (const char letter : text) {
      key = counter_hash({key, static_cast<unsigned char>(letter)});
    }
  }
  return key;
}

float initial_value(const configuration& model, initialization start, std::uint64_t key,
                    std::uint64_t index, std::uint64_t seed) {
  constexpr double standard_deviation = 0.02;
  switch (start) {
    case initialization::zeros:
      return 0.0f;
    case initialization::ones:
      return 1.0f;
    case initialization::normal:
      return static_cast<float>(standard_deviation * standard_normal(seed, key, index));
    case initialization::residual_normal: {
      // Each layer adds twice to the residual stream; the sum keeps the variance of one term.
      const double scale = 1.0 / std::sqrt(2.0 * static_cast<double>(model.layers));
      return static_cast<float>(standard_deviation * scale * standard_normal(seed, key, index));
    }
  }
  throw std::invalid_argument("initial_value: unknown initialization " +
                              std::to_string(static_cast<int>(start)));
}

}  // namespace gpt
