// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <zero/numeric/scalar_ops.hpp>
#include <zero/optimizers/adam.hpp>
#include <zero/optimizers/adamw.hpp>
#include <zero/optimizers/arguments.hpp>
#include <zero/optimizers/lion.hpp>
#include <zero/optimizers/sgd.hpp>

namespace zero {

/// The constants of one step, computed once in double.
///
/// `prepare(step, arguments)` counts steps from 1 and throws usage_error for arguments that no
/// update can be made of; the decay it uses is the argument's, `weight_decay` is only the default
/// of groups that set none.
template <class O>
concept HasStepScalars = requires(const O& optimizer, std::uint64_t step,
                                  update_arguments arguments) {
  { O::name } -> std::convertible_to<std::string_view>;
  { O::moments_per_element } -> std::convertible_to<std::size_t>;
  { O::scalar_count } -> std::convertible_to<std::size_t>;
  { optimizer.prepare(step, arguments) } -> std::same_as<std::array<double, O::scalar_count>>;
  { optimizer.weight_decay } -> std::convertible_to<double>;
};

/// `update<Ops>(parameter, moments, gradient, scalars)`: the one body that every path runs.
///
/// V is Ops::lane_type. The body computes with the functions of Ops alone (see scalar_ops), never
/// with operators, so that every implementation of Ops gives the same bits. A zero gradient must
/// leave a zero parameter with zero moments exactly zero: padding relies on it.
template <class O, class T = float>
concept HasElementUpdate = requires(T& parameter, std::array<T, O::moments_per_element>& moments,
                                    const T& gradient,
                                    const std::array<T, O::scalar_count>& scalars) {
  O::template update<scalar_ops<T>>(parameter, moments, gradient, scalars);
};

/// An element-wise optimizer. Optimizers that need a whole tensor (LAMB, Muon) do not fit.
template <class O>
concept Optimizer = HasStepScalars<O> && HasElementUpdate<O>;

static_assert(Optimizer<adamw>);
static_assert(Optimizer<adam>);
static_assert(Optimizer<sgd>);
static_assert(Optimizer<lion>);

}  // namespace zero
