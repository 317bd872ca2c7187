// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <zero/config.hpp>
#include <zero/numeric/scalar_ops.hpp>
#include <zero/optimizers/arguments.hpp>

namespace zero {

/// Lion (Chen et al.): the sign of an interpolated momentum, with decoupled weight decay.
struct lion {
  static constexpr std::string_view name = "lion";
  static constexpr std::size_t moments_per_element = 1;
  static constexpr std::size_t scalar_count = 4;

  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;

  /// Throws: usage_error for step 0 and for betas outside [0, 1).
  std::array<double, scalar_count> prepare(std::uint64_t step,
                                           const update_arguments& arguments) const {
    detail::require_step(step, arguments);
    detail::require_decay_rate("beta1", beta1);
    detail::require_decay_rate("beta2", beta2);
    std::array<double, scalar_count> scalars{};
    step_scalars<scalar_ops<double>>(step, arguments, scalars.data());
    return scalars;
  }

  /// The values of prepare() without its checks, in double; device code can call it.
  ZERO_ANY_OPS template <class Ops>
  ZERO_HOST_DEVICE void step_scalars(std::uint64_t /*step*/, const update_arguments& arguments,
                                     double* scalars) const {
    scalars[0] = Ops::sub(1.0, beta1);
    scalars[1] = Ops::sub(1.0, beta2);
    scalars[2] = arguments.lr;
    scalars[3] = Ops::mul(arguments.lr, arguments.weight_decay);
  }

  ZERO_ANY_OPS template <class Ops, class V, class Moments, class Scalars>
  [[gnu::always_inline]] ZERO_HOST_DEVICE static constexpr void update(V& parameter,
                                                                       Moments& moments,
                                                                       const V& gradient,
                                                                       const Scalars& scalars) {
    V& m = moments[0];
    const V difference = Ops::sub(gradient, m);
    const V direction = Ops::sign(Ops::fma(scalars[0], difference, m));
    m = Ops::fma(scalars[1], difference, m);
    const V decayed = Ops::mul(scalars[3], parameter);
    parameter = Ops::sub(parameter, Ops::fma(scalars[2], direction, decayed));
  }
};

}  // namespace zero
