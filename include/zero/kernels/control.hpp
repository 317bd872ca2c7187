// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <zero/config.hpp>
#include <zero/detail/hash.hpp>
#include <zero/detail/hash_agreement.hpp>
#include <zero/loss_scale.hpp>
#include <zero/numeric/bit_cast.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>

namespace zero::kernels {

/// What the caller says about one step; on a device it arrives by a stream-ordered copy.
struct step_request {
  /// Gradients are divided by `divisor`, and multiplied by N first where the fold took the mean.
  double multiplier = 1;
  double divisor = 1;
  double clip = 0;  ///< largest norm of the mean gradient; 0: any
  /// Of everything else that the ranks must agree on.
  std::uint64_t arguments_hash = 0;
};

/// What a step decides and remembers; on a device it lies there, so that no step waits for the
/// host.
///
/// `decide` writes it once per step; the update kernels of devices read it. The fields below
/// `state` survive from step to step, the others describe the latest one.
struct control_block {
  float gradient_scale = 1;            ///< mean x unscale x clip, rounded once
  std::uint32_t found_inf = 0;         ///< not 0: the updates of this step do nothing
  std::uint32_t arguments_differ = 0;  ///< not 0: ranks asked for different steps; none was made
  double grad_norm = 0;                ///< of the mean gradient, before clipping
  double step_loss_scale = 1;          ///< in force during the backward pass of this step

  // state
  std::uint64_t steps = 0;  ///< taken
  std::uint64_t skipped_steps = 0;
  double loss_scale = 1;
  std::uint64_t finite_steps = 0;          ///< in a row, since the scale changed
  std::uint64_t overflows_at_minimum = 0;  ///< although the scale could not be lowered
  loss_scale_options scaling = {};
};

/// The doubles that the ranks sum once per step: squares, verdict, and a hash in three parts.
inline constexpr std::size_t step_message_elements = 8;

namespace detail {

/// Neither infinite nor NaN, whatever the compiler assumes about them.
ZERO_HOST_DEVICE inline bool is_finite(double value) noexcept {
  const auto bits = zero::detail::bit_cast<std::uint64_t>(value);
  return (bits & 0x7FF0000000000000U) != 0x7FF0000000000000U;
}

}  // namespace detail

/// The state before the first step.
inline control_block initial_control(const loss_scale_options& scaling) noexcept {
  control_block control;
  control.loss_scale = scaling.initial;
  control.scaling = scaling;
  return control;
}

/// A hash of what all ranks must agree on before a step: the request, and how far they have come.
ZERO_HOST_DEVICE inline std::uint64_t step_hash(const control_block& control,
                                                const step_request& request) noexcept {
  zero::detail::hasher hash;
  hash.add(request.arguments_hash).add(request.multiplier).add(request.divisor).add(request.clip);
  hash.add(control.loss_scale).add(control.steps).add(control.skipped_steps);
  return hash.value();
}

/// Writes this rank's part of the message; `is_counted` for one of the replicas of a gradient.
ZERO_ANY_OPS template <class Ops>
ZERO_HOST_DEVICE void write_step_message(const control_block& control, const step_request& request,
                                         double sum_of_squares, bool is_counted,
                                         double* message) noexcept {
  message[0] = is_counted ? sum_of_squares : 0.0;
  message[1] = detail::is_finite(sum_of_squares) ? 0.0 : 1.0;
  zero::detail::hash_agreement::write<Ops>(message + 2, step_hash(control, request));
}

/// What `advance` reads and writes; every pointer refers to device memory on a device.
template <class T>
struct advance_operands {
  control_block* control = nullptr;
  const step_request* request = nullptr;
  const double* message = nullptr;           ///< the messages of all ranks, summed
  const update_arguments* groups = nullptr;  ///< lr and weight decay of each parameter group
  std::uint32_t group_count = 0;
  int ranks = 1;
  T* scalars = nullptr;  ///< O::scalar_count for each group, one group after the other
};

namespace detail {

/// Halves the scale at an overflow, doubles it after a window of finite steps.
ZERO_ANY_OPS template <class Ops>
ZERO_HOST_DEVICE void advance_loss_scale(control_block& control, bool is_overflow) noexcept {
  const loss_scale_options& scaling = control.scaling;
  if (is_overflow) {
    if (control.loss_scale <= scaling.minimum) ++control.overflows_at_minimum;
    const double lower = Ops::mul(control.loss_scale, scaling.backoff);
    control.loss_scale = lower < scaling.minimum ? scaling.minimum : lower;
    control.finite_steps = 0;
  } else if (++control.finite_steps >= scaling.window) {
    const double higher = Ops::mul(control.loss_scale, scaling.growth);
    control.loss_scale = scaling.maximum < higher ? scaling.maximum : higher;
    control.finite_steps = 0;
  }
}

/// The norm of the mean gradient, and the factor from a stored gradient to the clipped mean.
ZERO_ANY_OPS template <class Ops>
ZERO_HOST_DEVICE void set_gradient_factors(control_block& control, const step_request& request,
                                           double sum_of_squares) noexcept {
  const double scaled = Ops::mul(request.divisor, control.step_loss_scale);
  const double unscale = Ops::div(request.multiplier, scaled);
  const double norm = Ops::mul(Ops::sqrt(sum_of_squares), unscale);
  const bool is_clipped = request.clip > 0 && norm > request.clip;
  const double clip_factor = is_clipped ? Ops::div(request.clip, norm) : 1.0;
  control.grad_norm = norm;
  control.gradient_scale = static_cast<float>(Ops::mul(unscale, clip_factor));
}

}  // namespace detail

/// Decides a step: taken, which is the result, or skipped; and with which scale.
///
/// `sums`: the messages of all `ranks`, summed. Every rank comes to the same decision, as it has
/// the same sums. Where the ranks disagree about the step, no state changes.
ZERO_ANY_OPS template <class Ops, Precision P>
ZERO_HOST_DEVICE bool decide(control_block& control, const step_request& request,
                             const double* sums, int ranks) noexcept {
  const bool agree =
      zero::detail::hash_agreement::holds<Ops>(sums + 2, step_hash(control, request), ranks);
  const bool is_finite = sums[1] == 0.0 && detail::is_finite(sums[0]);
  control.arguments_differ = agree ? 0 : 1;
  control.found_inf = agree && is_finite ? 0 : 1;
  control.step_loss_scale = P::loss_scaling::is_dynamic ? control.loss_scale : 1.0;
  detail::set_gradient_factors<Ops>(control, request, sums[0]);
  if (!agree) return false;
  ++(is_finite ? control.steps : control.skipped_steps);
  if constexpr (P::loss_scaling::is_dynamic) detail::advance_loss_scale<Ops>(control, !is_finite);
  return is_finite;
}

/// Decides a step and computes the scalars of its updates. One thread runs it, once a step.
///
/// A power of beta is computed by repeated squaring from the step number, as prepare() does it, so
/// nothing has to be carried from step to step and the scalars have the host's bits.
ZERO_ANY_OPS template <class Ops, Precision P, Optimizer O>
ZERO_HOST_DEVICE void advance(const O& optimizer,
                              const advance_operands<typename P::compute_type>& operands) {
  control_block& control = *operands.control;
  if (!decide<Ops, P>(control, *operands.request, operands.message, operands.ranks)) return;
  for (std::uint32_t g = 0; g < operands.group_count; ++g) {
    double values[O::scalar_count];
    optimizer.template step_scalars<Ops>(control.steps, operands.groups[g], values);
    for (std::size_t k = 0; k < O::scalar_count; ++k) {
      operands.scalars[g * O::scalar_count + k] = static_cast<typename P::compute_type>(values[k]);
    }
  }
}

}  // namespace zero::kernels
