// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <zero/optimizers/arguments.hpp>

namespace zero::detail {

/// What adam and adamw share: hyperparameters, scalars and the step direction.
struct adam_scalars {
  static constexpr std::size_t one_minus_beta1 = 0;
  static constexpr std::size_t one_minus_beta2 = 1;
  static constexpr std::size_t inverse_root_correction = 2;
  static constexpr std::size_t eps = 3;
  static constexpr std::size_t step_size = 4;
  static constexpr std::size_t decay = 5;
  static constexpr std::size_t count = 6;
};

inline std::array<double, adam_scalars::count> prepare_adam(double beta1, double beta2, double eps,
                                                            std::uint64_t step,
                                                            const update_arguments& arguments,
                                                            double decay) {
  require_step(step, arguments);
  require_decay_rate("beta1", beta1);
  require_decay_rate("beta2", beta2);
  require_epsilon(eps);
  return {1.0 - beta1,
          1.0 - beta2,
          1.0 / std::sqrt(bias_correction(beta2, step)),
          eps,
          arguments.lr / bias_correction(beta1, step),
          decay};
}

/// Advances both moments and returns m / (sqrt(v) / sqrt(correction) + eps).
///
/// Moments move by interpolation, m += (1 - beta1) (g - m): rounding beta and 1 - beta separately
/// would bias them, for v by 1e-5. v cannot become negative: g*g - v >= -v also after rounding,
/// and v + (1 - beta2) d >= v - (1 - beta2) v >= 0 is rounded once.
template <class Ops, class V>
[[gnu::always_inline]] constexpr V adam_direction(
    std::array<V, 2>& moments, const V& gradient,
    const std::array<V, adam_scalars::count>& scalars) {
  V& m = moments[0];
  V& v = moments[1];
  m = Ops::fma(scalars[adam_scalars::one_minus_beta1], Ops::sub(gradient, m), m);
  v = Ops::fma(scalars[adam_scalars::one_minus_beta2], Ops::fma(gradient, gradient, Ops::negate(v)),
               v);
  const V denominator = Ops::fma(Ops::sqrt(v), scalars[adam_scalars::inverse_root_correction],
                                 scalars[adam_scalars::eps]);
  return Ops::div(m, denominator);
}

}  // namespace zero::detail
