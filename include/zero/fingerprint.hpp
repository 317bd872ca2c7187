// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <zero/detail/hash.hpp>
#include <zero/layout.hpp>
#include <zero/model_state.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/version.hpp>

namespace zero {

/// Eight words that describe everything ranks must agree on. They are compared between all ranks
/// before any payload moves; a word that differs names its field.
struct fingerprint {
  static constexpr std::size_t word_count = 8;
  static constexpr std::array<std::string_view, word_count> word_names = {
      "tensor and unit names", "tensor shapes", "element types and trainable flags",
      "parameter groups",      "stage and precision", "options and number of ranks",
      "optimizer",             "library version"};

  std::array<std::uint64_t, word_count> words{};
};

/// What the options word covers besides the layout.
struct fingerprint_options {
  int ranks = 1;
  accumulation mode = accumulation::none;
  std::uint64_t extra = 0;  ///< hash of the engine's other options
};

/// One hash per prefix of the tensors: entry i covers tensors 0 to i, so the first tensor in which
/// two ranks differ can be found by bisection.
inline std::uint64_t tensor_prefix_hash(const model_layout& layout, std::uint64_t count) {
  detail::hasher hash;
  for (std::uint64_t t = 0; t < count; ++t) {
    if (t >= layout.tensor_count()) {
      hash.add(std::string_view("absent"));
      continue;
    }
    const tensor_id id{static_cast<std::uint32_t>(t)};
    const tensor_info info = layout.info(id);
    hash.add(info.name).add(layout.unit_name(info.unit));
    for (const std::uint64_t extent : info.shape) hash.add(extent);
    hash.add(std::uint64_t{info.shape.size()})
        .add(std::uint64_t{info.trainable})
        .add(std::uint64_t{info.group.value})
        .add(std::uint64_t{layout.owner(id).value});
  }
  return hash.value();
}

namespace detail {

inline void hash_layout(const model_layout& layout, fingerprint& print) {
  hasher names;
  hasher shapes;
  hasher flags;
  hasher groups;
  for (std::uint32_t u = 0; u < layout.unit_count(); ++u) names.add(layout.unit_name(unit_id{u}));
  for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
    const tensor_info info = layout.info(tensor_id{t});
    names.add(info.name).add(std::uint64_t{info.unit.value});
    shapes.add(std::uint64_t{info.shape.size()});
    for (const std::uint64_t extent : info.shape) shapes.add(extent);
    flags.add(std::uint64_t{info.trainable}).add(
        std::uint64_t{layout.owner(tensor_id{t}).value});
    groups.add(std::uint64_t{info.group.value});
  }
  for (std::uint32_t g = 0; g < layout.group_count(); ++g) {
    const group_options& group = layout.group(group_id{g});
    groups.add(group.lr_multiplier.value_or(-1.0)).add(group.weight_decay.value_or(-1.0));
  }
  print.words[0] = names.value();
  print.words[1] = shapes.value();
  print.words[2] = flags.value();
  print.words[3] = groups.value();
}

/// Name, constants and the scalars of two steps: they depend on every hyperparameter.
template <Optimizer O>
std::uint64_t hash_optimizer(const O& optimizer) {
  hasher hash;
  hash.add(std::string_view(O::name)).add(std::uint64_t{O::moments_per_element});
  hash.add(static_cast<double>(optimizer.weight_decay));
  for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{7}}) {
    for (const double scalar : optimizer.prepare(step, {1.0, 1.0})) hash.add(scalar);
  }
  return hash.value();
}

}  // namespace detail

/// The fingerprint of an engine with these template arguments.
template <Stage S, Precision P, Optimizer O>
fingerprint fingerprint_of(const model_layout& layout, const O& optimizer,
                           const fingerprint_options& options) {
  fingerprint print;
  detail::hash_layout(layout, print);
  print.words[2] = detail::hasher{}
                       .add(print.words[2])
                       .add(std::uint64_t{element_traits<typename P::parameter_type>::wire_id})
                       .add(std::uint64_t{element_traits<typename P::gradient_type>::wire_id})
                       .add(std::uint64_t{element_traits<typename P::moment_type>::wire_id})
                       .value();
  print.words[4] = detail::hasher{}
                       .add(std::string_view(S::name))
                       .add(std::string_view(P::name))
                       .value();
  detail::hasher hash;
  hash.add(layout.alignment_bytes())
      .add(static_cast<std::uint64_t>(options.ranks))
      .add(static_cast<std::uint64_t>(options.mode))
      .add(options.extra);
  for (const unit_id unit : layout.schedule()) hash.add(std::uint64_t{unit.value});
  print.words[5] = hash.value();
  print.words[6] = detail::hash_optimizer(optimizer);
  print.words[7] = detail::hasher{}.add(version_number).value();
  return print;
}

}  // namespace zero
