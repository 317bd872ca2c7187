// SPDX-License-Identifier: Apache-2.0
#include "gpt_layout.hpp"

#include <array>
#include <charconv>
#include <string>

#include "program.hpp"

namespace planning {
namespace {

/// Adds tensors to one unit, named after it.
class unit_maker {
 public:
  unit_maker(zero::model_layout& layout, std::string name)
      : layout_(layout), unit_(layout.add_unit(name)), name_(std::move(name)) {}

  zero::tensor_id add(const char* tensor, std::initializer_list<std::uint64_t> shape,
                      zero::group_id group, zero::tensor_options options = {}) {
    return layout_.add_tensor(unit_, name_ + "." + tensor, shape, group, options);
  }

 private:
  zero::model_layout& layout_;
  zero::unit_id unit_;
  std::string name_;
};

}  // namespace

gpt_sizes parse_gpt(std::string_view text) {
  const std::string complaint =
      "\"" + std::string(text) + "\" is not LAYERS,WIDTH,VOCAB,CONTEXT (4,128,256,128)";
  std::array<std::uint64_t, 4> numbers{};
  std::string_view rest = text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) {
      if (rest.empty() || rest.front() != ',')
        throw example::usage_failure(complaint);
      rest.remove_prefix(1);
    }
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), numbers[i]);
    // Beyond these sizes products leave 64 bits; a layer is a unit with names to keep.
    const std::uint64_t limit = i == 0 ? 100'000 : 1'000'000'000;
    if (error != std::errc{} || numbers[i] == 0 || numbers[i] > limit) {
      throw example::usage_failure(complaint);
    }
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  if (!rest.empty())
    throw example::usage_failure(complaint);
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

zero::model_layout make_gpt_layout(const gpt_sizes& sizes, zero::layout_options options) {
  using zero::decay;
  using zero::no_decay;
  const std::uint64_t d = sizes.width;
  zero::model_layout layout(options);
  unit_maker embedding(layout, "embedding");
  const zero::tensor_id wte = embedding.add("wte", {sizes.vocabulary, d}, no_decay);
  embedding.add("wpe", {sizes.context, d}, no_decay);
  for (std::uint64_t i = 0; i < sizes.layers; ++i) {
    unit_maker block(layout, "block" + std::to_string(i));
    block.add("ln1_weight", {d}, no_decay);
    block.add("ln1_bias", {d}, no_decay);
    block.add("qkv_weight", {3 * d, d}, decay);
    block.add("qkv_bias", {3 * d}, no_decay);
    block.add("projection_weight", {d, d}, decay);
    block.add("projection_bias", {d}, no_decay);
    block.add("ln2_weight", {d}, no_decay);
    block.add("ln2_bias", {d}, no_decay);
    block.add("fc_weight", {4 * d, d}, decay);
    block.add("fc_bias", {4 * d}, no_decay);
    block.add("fc_projection_weight", {d, 4 * d}, decay);
    block.add("fc_projection_bias", {d}, no_decay);
  }
  unit_maker final(layout, "final");
  final.add("ln_weight", {d}, no_decay);
  final.add("ln_bias", {d}, no_decay);
  unit_maker head(layout, "head");
  head.add("wte", {sizes.vocabulary, d}, no_decay, {.tied_to = wte});
  return layout;
}

}  // namespace planning
