// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <zero/optimizers/arguments.hpp>

namespace zero {

/// Gradient descent with momentum: m = momentum * m + g + weight_decay * p, then p -= lr * m.
struct sgd {
  static constexpr std::string_view name = "sgd";
  static constexpr std::size_t moments_per_element = 1;
  static constexpr std::size_t scalar_count = 3;

  double momentum = 0.9;
  double weight_decay = 0.0;

  /// Throws: usage_error for step 0 and for momentum outside [0, 1).
  std::array<double, scalar_count> prepare(std::uint64_t step,
                                           const update_arguments& arguments) const {
    detail::require_step(step, arguments);
    detail::require_decay_rate("momentum", momentum);
    return {momentum, arguments.weight_decay, -arguments.lr};
  }

  template <class Ops, class V>
  [[gnu::always_inline]] static constexpr void update(V& parameter, std::array<V, 1>& moments,
                                                      const V& gradient,
                                                      const std::array<V, scalar_count>& scalars) {
    const V decayed = Ops::fma(scalars[1], parameter, gradient);
    moments[0] = Ops::fma(scalars[0], moments[0], decayed);
    parameter = Ops::fma(scalars[2], moments[0], parameter);
  }
};

}  // namespace zero
