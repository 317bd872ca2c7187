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
    std::array<double, scalar_count> scalars{};
    step_scalars<scalar_ops<double>>(step, arguments, scalars.data());
    return scalars;
  }

  /// The values of prepare() without its checks, in double; device code can call it.
  ZERO_ANY_OPS template <class Ops>
  ZERO_HOST_DEVICE void step_scalars(std::uint64_t /*step*/, const update_arguments& arguments,
                                     double* scalars) const {
    scalars[0] = momentum;
    scalars[1] = arguments.weight_decay;
    scalars[2] = Ops::negate(arguments.lr);
  }

  ZERO_ANY_OPS template <class Ops, class V, class Moments, class Scalars>
  [[gnu::always_inline]] ZERO_HOST_DEVICE static constexpr void update(V& parameter,
                                                                       Moments& moments,
                                                                       const V& gradient,
                                                                       const Scalars& scalars) {
    const V decayed = Ops::fma(scalars[1], parameter, gradient);
    moments[0] = Ops::fma(scalars[0], moments[0], decayed);
    parameter = Ops::fma(scalars[2], moments[0], parameter);
  }
};

}  // namespace zero
