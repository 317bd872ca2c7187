// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include <zero/detail/hash.hpp>
#include <zero/engine_options.hpp>
#include <zero/error.hpp>
#include <zero/kernels/control.hpp>
#include <zero/layout.hpp>
#include <zero/optimizers/arguments.hpp>

namespace zero::detail {

/// Throws: usage_error for arguments that no step can be made of.
inline void check_step_arguments(const step_arguments& arguments, const model_layout& layout) {
  const auto reject = [](const char* what, double value) {
    throw usage_error(std::string("zero::engine::step: ") + what + " is " + std::to_string(value));
  };
  if (!std::isfinite(arguments.lr)) reject("lr", arguments.lr);
  if (!(arguments.clip >= 0)) reject("clip", arguments.clip);
  if (arguments.divisor && !(*arguments.divisor > 0)) reject("divisor", *arguments.divisor);
  for (const group_rate& group : arguments.group_lr) {
    if (group.group.value >= layout.group_count()) {
      throw usage_error("zero::engine::step: group_lr names group " +
                        std::to_string(group.group.value) + " of " +
                        std::to_string(layout.group_count()));
    }
    if (!std::isfinite(group.lr)) reject("a group's lr", group.lr);
  }
}

/// What the gradients of a step are made of, besides the arguments.
struct gradient_origin {
  int ranks = 1;  ///< of all replicas
  std::uint64_t micro_batches = 1;
  bool is_mean_of_ranks = false;  ///< the fold has divided by N already (fp16)
};

inline kernels::step_request make_step_request(const step_arguments& arguments,
                                               const gradient_origin& origin) {
  hasher hash;
  hash.add(origin.micro_batches).add(arguments.lr);
  for (const group_rate& group : arguments.group_lr) {
    hash.add(std::uint64_t{group.group.value}).add(group.lr);
  }
  const double ranks = origin.ranks;
  return {.multiplier = origin.is_mean_of_ranks ? ranks : 1.0,
          .divisor = arguments.divisor.value_or(ranks * static_cast<double>(origin.micro_batches)),
          .clip = arguments.clip,
          .arguments_hash = hash.value()};
}

/// Learning rate and weight decay of each group. `result` has a place for each.
inline void write_group_arguments(const step_arguments& arguments, const model_layout& layout,
                                  double default_decay, std::span<update_arguments> result) {
  for (std::uint32_t g = 0; g < result.size(); ++g) {
    const group_options& group = layout.group(group_id{g});
    double lr = arguments.lr * group.lr_multiplier.value_or(1.0);
    for (const group_rate& other : arguments.group_lr) {
      if (other.group == group_id{g}) lr = other.lr;
    }
    result[g] = {lr, group.weight_decay.value_or(default_decay)};
  }
}

}  // namespace zero::detail
