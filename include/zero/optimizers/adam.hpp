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
    detail::require_adam(beta1, beta2, eps, step, arguments);
    std::array<double, scalar_count> scalars{};
    step_scalars<scalar_ops<double>>(step, arguments, scalars.data());
    return scalars;
  }

  /// The values of prepare() without its checks, in double; device code can call it.
  ZERO_ANY_OPS template <class Ops>
  ZERO_HOST_DEVICE void step_scalars(std::uint64_t step, const update_arguments& arguments,
                                     double* scalars) const {
    using index = detail::adam_scalars;
    detail::write_adam_scalars<Ops>(beta1, beta2, eps, step, arguments.lr, scalars);
    scalars[index::step_size] = Ops::negate(scalars[index::step_size]);
    scalars[index::decay] = arguments.weight_decay;
  }

  ZERO_ANY_OPS template <class Ops, class V, class Moments, class Scalars>
  [[gnu::always_inline]] ZERO_HOST_DEVICE static constexpr void update(V& parameter,
                                                                       Moments& moments,
                                                                       const V& gradient,
                                                                       const Scalars& scalars) {
    using index = detail::adam_scalars;
    const V decayed = Ops::fma(scalars[index::decay], parameter, gradient);
    const V direction = detail::adam_direction<Ops>(moments, decayed, scalars);
    parameter = Ops::fma(scalars[index::step_size], direction, parameter);
  }
};

}  // namespace zero
