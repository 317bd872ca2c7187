// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <zero/config.hpp>
#include <zero/kernels/control.hpp>
#include <zero/kernels/cuda/ops.hpp>
#include <zero/kernels/cuda/pack.hpp>
#include <zero/kernels/update.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>

namespace zero::kernels::cuda {

/// Consecutive elements that one thread updates at a time. 4 needs fewer registers, 8 keeps twice
/// as many bytes in flight per thread.
inline constexpr std::size_t update_elements = 8;

/// An optimizer whose update takes arrays that device code can index, which std::array is not.
template <class O, class T>
concept HasDeviceUpdate = requires(T& parameter, fixed_array<T, O::moments_per_element>& moments,
                                   const T& gradient,
                                   const fixed_array<T, O::scalar_count>& scalars) {
  O::template update<cuda_ops<T>>(parameter, moments, gradient, scalars);
};

/// One optimizer step over a range, as the thread `thread` of `threads` does its part.
///
/// Every array is read once and written once. Nothing happens where the control block says that the
/// step is skipped.
template <Optimizer O, Precision P, class G, std::size_t Elements = update_elements>
class update_body {
 public:
  using compute_type = typename P::compute_type;
  using ops = cuda_ops<compute_type>;
  static_assert(HasDeviceUpdate<O, compute_type>,
                "zero::kernels::instantiate: the optimizer's update takes std::array, which device "
                "code cannot index (template <class Ops, class V, class Moments, class Scalars> "
                "ZERO_HOST_DEVICE static void update(V& parameter, Moments& moments, const V& "
                "gradient, const Scalars& scalars))");

  /// `scalars`: the O::scalar_count constants of the range's group; they and `control` lie in
  /// device memory.
  update_body(const update_operands<O, P, G>& operands, const control_block* control,
              const compute_type* scalars) noexcept
      : parameters_(operands.parameters),
        masters_(operands.masters),
        gradients_(operands.gradients),
        count_(operands.count),
        control_(control),
        scalars_(scalars) {
    for (std::size_t k = 0; k < O::moments_per_element; ++k) moments_[k] = operands.moments[k];
  }

  ZERO_HOST_DEVICE void run(std::uint64_t thread, std::uint64_t threads) const {
    if (control_->found_inf != 0) return;
    fixed_array<compute_type, O::scalar_count> constants;
    for (std::size_t k = 0; k < O::scalar_count; ++k) constants[k] = scalars_[k];
    const auto scale = static_cast<compute_type>(control_->gradient_scale);
    for_each_pack<Elements>(thread, threads, count_, can_use_packs(),
                            [&](std::uint64_t first, auto length) {
                              update<decltype(length)::value>(first, constants, scale);
                            });
  }

 private:
  ZERO_HOST_DEVICE bool can_use_packs() const {
    bool all = is_aligned(parameters_) && is_aligned(gradients_);
    if constexpr (has_master<P>) all = all && is_aligned(masters_);
    for (std::size_t k = 0; k < O::moments_per_element; ++k) all = all && is_aligned(moments_[k]);
    return all;
  }

  template <std::size_t Length, class Constants>
  ZERO_HOST_DEVICE void update(std::uint64_t first, const Constants& constants,
                               const compute_type& scale) const {
    using moment_type = typename P::moment_type;
    // All loads before the first operation: their latencies overlap. A parameter that is
    // only its master's rounding is not used, and then the compiler drops its load.
    auto parameters = load_pack<Length>(parameters_ + first);
    pack<master_type<P>, Length> masters = {};
    pack<pack<moment_type, Length>, O::moments_per_element> moments;
    if constexpr (has_master<P>) masters = load_pack<Length>(masters_ + first);
    for (std::size_t k = 0; k < O::moments_per_element; ++k) {
      moments[k] = load_pack<Length>(moments_[k] + first);
    }
    const pack<G, Length> gradients = load_pack<Length>(gradients_ + first);

    for (std::size_t i = 0; i < Length; ++i) {
      const auto raw = convert_element<compute_type>(gradients[i]);
      const compute_type gradient = ops::mul(raw, scale);
      auto parameter = static_cast<compute_type>(P::load(parameters[i], masters[i]));
      fixed_array<compute_type, O::moments_per_element> element_moments;
      for (std::size_t k = 0; k < O::moments_per_element; ++k) {
        element_moments[k] = convert_element<compute_type>(moments[k][i]);
      }
      O::template update<ops>(parameter, element_moments, gradient, constants);
      for (std::size_t k = 0; k < O::moments_per_element; ++k) {
        moments[k][i] = convert_element<moment_type>(element_moments[k]);
      }
      P::store(parameter, parameters[i], masters[i]);
    }

    store_pack<Length>(parameters_ + first, parameters);
    if constexpr (has_master<P>) store_pack<Length>(masters_ + first, masters);
    for (std::size_t k = 0; k < O::moments_per_element; ++k) {
      store_pack<Length>(moments_[k] + first, moments[k]);
    }
  }

  typename P::parameter_type* parameters_;
  master_type<P>* masters_;
  fixed_array<typename P::moment_type*, O::moments_per_element> moments_ = {};
  const G* gradients_;
  std::uint64_t count_;
  const control_block* control_;
  const compute_type* scalars_;
};

}  // namespace zero::kernels::cuda
