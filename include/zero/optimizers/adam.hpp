// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <zero/optimizers/adam_moments.hpp>

namespace zero {

/// Adam as first published (Kingma and Ba); weight decay is an L2 term in the gradient.
struct adam {
  static constexpr std::string_view name = "adam";
  static constexpr std::size_t moments_per_element = 2;
  static constexpr std::size_t scalar_count = detail::adam_scalars::count;

  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;

  /// Throws: usage_error for step 0, betas outside [0, 1), eps that is 0 in fp32.
  std::array<double, scalar_count> prepare(std::uint64_t step,
                                           const update_arguments& arguments) const {
    auto scalars = detail::prepare_adam(beta1, beta2, eps, step, arguments, arguments.weight_decay);
    scalars[detail::adam_scalars::step_size] *= -1.0;
    return scalars;
  }

  template <class Ops, class V>
  [[gnu::always_inline]] static constexpr void update(V& parameter, std::array<V, 2>& moments,
                                                      const V& gradient,
                                                      const std::array<V, scalar_count>& scalars) {
    using index = detail::adam_scalars;
    const V decayed = Ops::fma(scalars[index::decay], parameter, gradient);
    const V direction = detail::adam_direction<Ops>(moments, decayed, scalars);
    parameter = Ops::fma(scalars[index::step_size], direction, parameter);
  }
};

}  // namespace zero
