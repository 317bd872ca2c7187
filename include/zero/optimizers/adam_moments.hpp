// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <zero/config.hpp>
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

/// Throws: usage_error for step 0, betas outside [0, 1), eps that is 0 in fp32.
inline void require_adam(double beta1, double beta2, double eps, std::uint64_t step,
                         const update_arguments& arguments) {
  require_step(step, arguments);
  require_decay_rate("beta1", beta1);
  require_decay_rate("beta2", beta2);
  require_epsilon(eps);
}

/// All scalars but the decay, which adam and adamw use in different ways.
ZERO_ANY_OPS template <class Ops>
ZERO_HOST_DEVICE void write_adam_scalars(double beta1, double beta2, double eps, std::uint64_t step,
                                         double lr, double* scalars) {
  const double root = Ops::sqrt(bias_correction<Ops>(beta2, step));
  scalars[adam_scalars::one_minus_beta1] = Ops::sub(1.0, beta1);
  scalars[adam_scalars::one_minus_beta2] = Ops::sub(1.0, beta2);
  scalars[adam_scalars::inverse_root_correction] = Ops::div(1.0, root);
  scalars[adam_scalars::eps] = eps;
  scalars[adam_scalars::step_size] = Ops::div(lr, bias_correction<Ops>(beta1, step));
}

/// Advances both moments and returns m / (sqrt(v) / sqrt(correction) + eps).
///
/// Moments move by interpolation, m += (1 - beta1) (g - m): rounding beta and 1 - beta separately
/// would bias them, for v by 1e-5. v cannot become negative: g*g - v >= -v also after rounding,
/// and v + (1 - beta2) d >= v - (1 - beta2) v >= 0 is rounded once.
ZERO_ANY_OPS template <class Ops, class V, class Moments, class Scalars>
[[gnu::always_inline]] ZERO_HOST_DEVICE constexpr V adam_direction(Moments& moments,
                                                                   const V& gradient,
                                                                   const Scalars& scalars) {
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
