// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <zero/kernels/cpu/dispatch.hpp>
#include <zero/kernels/cpu/lane_io.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>
#include <zero/range.hpp>

namespace zero::kernels {

/// The arrays of one fused update; all have `count` elements, none overlap.
///
/// G is the policy's gradient_type or accumulation_type. `masters` is null where the policy stores
/// none.
template <Optimizer O, Precision P, class G>
struct update_operands {
  typename P::parameter_type* parameters = nullptr;
  master_type<P>* masters = nullptr;
  std::array<typename P::moment_type*, O::moments_per_element> moments = {};
  const G* gradients = nullptr;
  std::uint64_t count = 0;
};

namespace cpu {

/// One pass over all model states of a range of elements.
template <Optimizer O, Precision P, class G>
struct update_kernel {
  using compute_type = typename P::compute_type;

  const update_operands<O, P, G>& operands;
  std::array<compute_type, O::scalar_count> scalars;
  compute_type gradient_scale;

  template <class Ops>
  [[gnu::always_inline]] inline void run() const {
    const std::uint64_t in_full_lanes = operands.count - operands.count % Ops::lanes;
    update_range<Ops>(0, in_full_lanes);
    if constexpr (Ops::lanes > 1) {
      update_range<scalar_ops<compute_type>>(in_full_lanes, operands.count);
    }
  }

 private:
  template <class Ops>
  [[gnu::always_inline]] inline void update_range(std::uint64_t first, std::uint64_t last) const {
    using lanes = typename Ops::lane_type;
    std::array<lanes, O::scalar_count> constants;
    for (std::size_t k = 0; k < O::scalar_count; ++k)
      constants[k] = Ops::set(scalars[k]);
    const lanes scale = Ops::set(gradient_scale);
    for (std::uint64_t i = first; i < last; i += Ops::lanes) {
      const lanes raw = lane_io<G, Ops>::load(operands.gradients + i);
      const lanes gradient = Ops::mul(raw, scale);
      lanes parameter = lane_storage<P, Ops>::load(operands.parameters + i, masters_at(i));
      std::array<lanes, O::moments_per_element> moments;
      for (std::size_t k = 0; k < O::moments_per_element; ++k) {
        moments[k] = lane_io<typename P::moment_type, Ops>::load(operands.moments[k] + i);
      }
      O::template update<Ops>(parameter, moments, gradient, constants);
      for (std::size_t k = 0; k < O::moments_per_element; ++k) {
        lane_io<typename P::moment_type, Ops>::store(operands.moments[k] + i, moments[k]);
      }
      lane_storage<P, Ops>::store(operands.parameters + i, masters_at(i), parameter);
    }
  }

  [[gnu::always_inline]] inline master_type<P>* masters_at(std::uint64_t i) const {
    if constexpr (has_master<P>) {
      return operands.masters + i;
    } else {
      return nullptr;
    }
  }
};

}  // namespace cpu

/// Multiplies the gradients by `gradient_scale` and applies one optimizer step, in one pass.
///
/// `scalars` come from the optimizer's prepare(). Each element is computed alone and in a fixed
/// sequence of roundings: alignment, the split of a buffer over calls, the instruction set and the
/// compiler's flags do not change a bit (fast-math options, which change the meaning of the
/// program, and the payload of a NaN excepted).
/// Throws: usage_error when this CPU cannot run `path`.
template <Optimizer O, Precision P, class G>
void update(host_space, const update_operands<O, P, G>& operands,
            const std::array<double, O::scalar_count>& scalars, float gradient_scale,
            cpu::isa path = cpu::instruction_set()) {
  static_assert(std::is_same_v<G, typename P::gradient_type> ||
                    std::is_same_v<G, typename P::accumulation_type>,
                "zero::kernels::update: gradients must be gradient_type or accumulation_type");
  using compute_type = typename P::compute_type;
  cpu::update_kernel<O, P, G> kernel{operands, {}, static_cast<compute_type>(gradient_scale)};
  for (std::size_t k = 0; k < O::scalar_count; ++k) {
    kernel.scalars[k] = static_cast<compute_type>(scalars[k]);
  }
  if constexpr (std::is_same_v<compute_type, float>) {
    cpu::run(path, kernel);
  } else {
    kernel.template run<scalar_ops<compute_type>>();
  }
}

}  // namespace zero::kernels
