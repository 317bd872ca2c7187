// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <zero/config.hpp>
#include <zero/numeric/scalar_ops.hpp>
#include <zero/optimizers/adam_moments.hpp>

namespace zero {

/// Adam with decoupled weight decay (Loshchilov and Hutter).
///
/// p -= step_size * direction + lr * weight_decay * p, subtracted in one rounding. The usual form
/// p * (1 - lr * weight_decay) rounds the factor in the same direction in every step, and ends
/// fifteen times further from the exact result.
struct adamw {
  static constexpr std::string_view name = "adamw";
  static constexpr std::size_t moments_per_element = 2;
  static constexpr std::size_t scalar_count = detail::adam_scalars::count;

  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;

  /// Throws: usage_error for step 0, betas outside [0, 1), eps that is 0 in fp32.
  std::array<double, scalar_count> prepare(std::uint64_t step,
                                           const update_arguments& arguments) const {
    detail::require_adam(beta1, beta2, eps, step, arguments);
    std::array<double, scalar_count> scalars{};
    step_scalars<scalar_ops<double>>(step, arguments, scalars.data());
    return scalars;
  }

  /// The values of prepare() without its checks, in double; device code can call it.
  ZERO_ANY_OPS template <class Ops>
  ZERO_HOST_DEVICE void step_scalars(std::uint64_t step, const update_arguments& arguments,
                                     double* scalars) const {
    detail::write_adam_scalars<Ops>(beta1, beta2, eps, step, arguments.lr, scalars);
    scalars[detail::adam_scalars::decay] = Ops::mul(arguments.lr, arguments.weight_decay);
  }

  ZERO_ANY_OPS template <class Ops, class V, class Moments, class Scalars>
  [[gnu::always_inline]] ZERO_HOST_DEVICE static constexpr void update(V& parameter,
                                                                       Moments& moments,
                                                                       const V& gradient,
                                                                       const Scalars& scalars) {
    using index = detail::adam_scalars;
    const V direction = detail::adam_direction<Ops>(moments, gradient, scalars);
    const V decayed = Ops::mul(scalars[index::decay], parameter);
    parameter = Ops::sub(parameter, Ops::fma(scalars[index::step_size], direction, decayed));
  }
};

}  // namespace zero
