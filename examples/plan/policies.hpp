// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <zero/model_state.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>
#include <zero/stage.hpp>

#include "program.hpp"

// The library's policies by name. A planner is the one place where a stage is chosen at run time.
namespace planning {

struct named_stage {
  std::string_view name;
  zero::stage_flags flags;
};

template <zero::Stage S>
constexpr named_stage name_stage() noexcept {
  return {S::name, zero::flags_of<S>()};
}

inline constexpr std::array stages{name_stage<zero::stage0>(), name_stage<zero::stage1>(),
                                   name_stage<zero::stage2>(), name_stage<zero::stage3>(),
                                   name_stage<zero::stage3_keep_gathered>()};

/// A precision and an optimizer, and the bytes per element that follow from the two.
struct named_policy {
  std::string_view precision;
  std::string_view optimizer;
  zero::element_bytes bytes;
};

template <zero::Precision P, zero::Optimizer O>
constexpr named_policy name_policy() noexcept {
  return {P::name, O::name, zero::bytes_of<P, O>()};
}

template <zero::Precision P>
constexpr std::array<named_policy, 4> optimizers_with() noexcept {
  return {name_policy<P, zero::adamw>(), name_policy<P, zero::adam>(), name_policy<P, zero::sgd>(),
          name_policy<P, zero::lion>()};
}

inline constexpr std::array policies{
    optimizers_with<zero::bf16_mixed>(), optimizers_with<zero::fp32>(),
    optimizers_with<zero::fp16_mixed>(), optimizers_with<zero::bf16_mixed_fp32_gradients>(),
    optimizers_with<zero::bf16_remainder>()};

/// What the paper counts with: 16-bit parameters and gradients, Adam's K = 12.
inline constexpr zero::element_bytes paper_bytes = zero::bytes_of<zero::bf16_mixed, zero::adamw>();

/// Throws: example::usage_failure with the names there are.
inline const named_stage& find_stage(std::string_view name) {
  std::string known;
  for (const named_stage& stage : stages) {
    if (stage.name == name) return stage;
    known += " " + std::string(stage.name);
  }
  throw example::usage_failure("there is no stage \"" + std::string(name) + "\"; known:" + known);
}

/// Throws: example::usage_failure with the names there are.
inline const named_policy& find_policy(std::string_view precision, std::string_view optimizer) {
  std::string precisions;
  std::string optimizers;
  for (const auto& group : policies) {
    precisions += " " + std::string(group.front().precision);
    for (const named_policy& policy : group) {
      if (policy.precision == precision && policy.optimizer == optimizer) return policy;
    }
  }
  for (const named_policy& policy : policies.front()) {
    optimizers += " " + std::string(policy.optimizer);
  }
  throw example::usage_failure("there is no precision \"" + std::string(precision) +
                               "\" with optimizer \"" + std::string(optimizer) +
                               "\"; precisions:" + precisions + "; optimizers:" + optimizers);
}

}  // namespace planning
