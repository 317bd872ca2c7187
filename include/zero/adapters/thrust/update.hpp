// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cuda/pointer.h>

#include <zero/config.hpp>
#include <zero/kernels/cuda/ops.hpp>
#include <zero/kernels/cuda/pack.hpp>
#include <zero/kernels/cuda/update_body.hpp>
#include <zero/kernels/update.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>

namespace zero {
namespace detail {

/// One optimizer step on the element with a given index; all that Thrust has to call.
///
/// It is written without what the kernels have in common with each other: no lanes, no packs, no
/// tail, no striding, and no load or store but the element's own.
template <Optimizer O, Precision P, class G>
class thrust_element_update {
  using compute_type = typename P::compute_type;
  using moment_type = typename P::moment_type;
  using ops = kernels::cuda::cuda_ops<compute_type>;  // on the host they are scalar_ops

 public:
  /// An update that takes std::array only is one for the host; see HasDeviceUpdate.
  static constexpr bool is_for_devices = kernels::cuda::HasDeviceUpdate<O, compute_type>;

  thrust_element_update(const kernels::update_operands<O, P, G>& operands,
                        const std::array<double, O::scalar_count>& scalars,
                        float gradient_scale) noexcept
      : parameters_(operands.parameters),
        masters_(operands.masters),
        gradients_(operands.gradients),
        gradient_scale_(static_cast<compute_type>(gradient_scale)) {
    for (std::size_t k = 0; k < O::moments_per_element; ++k) moments_[k] = operands.moments[k];
    for (std::size_t k = 0; k < O::scalar_count; ++k) {
      scalars_[k] = static_cast<compute_type>(scalars[k]);
    }
  }

  ZERO_HOST_DEVICE void operator()(std::uint64_t i) const {
    using kernels::cuda::convert_element;
    master_type<P> master = {};
    if constexpr (has_master<P>) master = masters_[i];
    auto parameter = static_cast<compute_type>(P::load(parameters_[i], master));
    array<compute_type, O::moments_per_element> moments = {};
    for (std::size_t k = 0; k < O::moments_per_element; ++k) {
      moments[k] = convert_element<compute_type>(moments_[k][i]);
    }
    const compute_type gradient =
        ops::mul(convert_element<compute_type>(gradients_[i]), gradient_scale_);

    O::template update<ops>(parameter, moments, gradient, scalars_);

    P::store(parameter, parameters_[i], master);
    if constexpr (has_master<P>) masters_[i] = master;
    for (std::size_t k = 0; k < O::moments_per_element; ++k) {
      moments_[k][i] = convert_element<moment_type>(moments[k]);
    }
  }

 private:
  template <class T, std::size_t Length>
  using array = std::conditional_t<is_for_devices, kernels::cuda::fixed_array<T, Length>,
                                   std::array<T, Length>>;

  typename P::parameter_type* parameters_;
  master_type<P>* masters_;
  array<moment_type*, O::moments_per_element> moments_ = {};
  const G* gradients_;
  array<compute_type, O::scalar_count> scalars_ = {};
  compute_type gradient_scale_;
};

}  // namespace detail

/// Multiplies the gradients by `gradient_scale` and applies one optimizer step, on any system of
/// Thrust: what kernels::update does, bit for bit, and slower.
///
/// `policy` says where, and in which memory the operands lie: thrust::cpp::par, thrust::omp::par,
/// thrust::cuda::par_nosync.on(stream), thrust::host, thrust::device, ... All operands have
/// `operands.count` elements and none overlap.
///
/// It is the kernels' second oracle. Which elements are visited, in which order and by which
/// thread, is Thrust's affair, and each element is loaded, updated and stored alone; so whatever a
/// kernel gets wrong about traversal, lanes, packs, alignment, tails or neighbours differs here.
/// The element's own arithmetic is O::update and P's load and store, as in the kernels, because
/// equal bits are the promise: what these are wrong about, they are wrong about in both. Their
/// oracles are elsewhere, a computation in whole-array passes that knows only the formulas
/// (tests/unit/adapters/thrust_cpp/passes.hpp) and the runs in double of the optimizers' tests.
///
/// Stream: that of the policy; `par` waits for the result, `par_nosync` does not.
/// Throws: what Thrust throws, thrust::system_error.
template <Optimizer O, Precision P, class G, class Policy>
void thrust_update(const Policy& policy, const kernels::update_operands<O, P, G>& operands,
                   const std::array<double, O::scalar_count>& scalars, float gradient_scale) {
  static_assert(std::is_same_v<G, typename P::gradient_type> ||
                    std::is_same_v<G, typename P::accumulation_type>,
                "zero::thrust_update: gradients must be gradient_type or accumulation_type");
  using element_update = detail::thrust_element_update<O, P, G>;
  static_assert(
      element_update::is_for_devices || !std::is_convertible_v<const Policy&, thrust::cuda::tag>,
      "zero::thrust_update: the optimizer's update takes std::array, which device code "
      "cannot index (template <class Ops, class V, class Moments, class Scalars> "
      "ZERO_HOST_DEVICE static void update(V& parameter, Moments& moments, const V& "
      "gradient, const Scalars& scalars))");
  thrust::for_each_n(policy, thrust::make_counting_iterator(std::uint64_t{0}), operands.count,
                     element_update(operands, scalars, gradient_scale));
}

}  // namespace zero
