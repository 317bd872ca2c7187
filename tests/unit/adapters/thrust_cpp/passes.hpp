// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <thrust/for_each.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/transform.h>
#include <thrust/tuple.h>
#include <thrust/zip_function.h>

#include <zero/kernels/update.hpp>

// An optimizer step that shares nothing with the kernels but the stored formats: every operation
// of the published formulas is a pass over whole arrays, as one would write it with Thrust. An
// array in memory between two operations rounds each of them, so equal bits are expected.
namespace passes {

using floats = thrust::host_vector<float>;

template <class Function, class... Arrays>
floats each(Function function, const floats& first, const Arrays&... others) {
  floats result(first.size());
  thrust::transform(thrust::make_zip_iterator(thrust::make_tuple(first.begin(), others.begin()...)),
                    thrust::make_zip_iterator(thrust::make_tuple(first.end(), others.end()...)),
                    result.begin(), thrust::make_zip_function(function));
  return result;
}

inline floats difference(const floats& a, const floats& b) {
  return each([](float x, float y) { return x - y; }, a, b);
}
inline floats quotient(const floats& a, const floats& b) {
  return each([](float x, float y) { return x / y; }, a, b);
}
inline floats scaled(float factor, const floats& a) {
  return each([factor](float x) { return factor * x; }, a);
}
/// factor * a + b, rounded once.
inline floats sum(float factor, const floats& a, const floats& b) {
  return each([factor](float x, float y) { return std::fma(factor, x, y); }, a, b);
}
/// b moved towards a by a part of the way.
inline floats interpolated(float part, const floats& b, const floats& a) {
  return sum(part, difference(a, b), b);
}

/// The states of all elements in fp32.
struct states {
  floats parameter;
  std::vector<floats> moment;
  floats gradient;
};

/// `s` holds 1 - beta1, 1 - beta2, 1 / sqrt(1 - beta2^t), eps, the step size, the decay.
inline floats adam_direction(states& x, const std::array<float, 6>& s) {
  x.moment[0] = interpolated(s[0], x.moment[0], x.gradient);
  const floats square_less_v =
      each([](float g, float v) { return std::fma(g, g, -v); }, x.gradient, x.moment[1]);
  x.moment[1] = sum(s[1], square_less_v, x.moment[1]);
  const floats root = each([](float v) { return std::sqrt(v); }, x.moment[1]);
  const float eps = s[3];
  const floats denominator =
      each([factor = s[2], eps](float r) { return std::fma(r, factor, eps); }, root);
  return quotient(x.moment[0], denominator);
}

inline void step(zero::adamw, states& x, const std::array<float, 6>& s) {
  const floats direction = adam_direction(x, s);
  x.parameter = difference(x.parameter, sum(s[4], direction, scaled(s[5], x.parameter)));
}

inline void step(zero::adam, states& x, const std::array<float, 6>& s) {
  x.gradient = sum(s[5], x.parameter, x.gradient);
  const floats direction = adam_direction(x, s);
  x.parameter = sum(s[4], direction, x.parameter);
}

/// `s` holds momentum, weight decay, -lr.
inline void step(zero::sgd, states& x, const std::array<float, 3>& s) {
  x.moment[0] = sum(s[0], x.moment[0], sum(s[1], x.parameter, x.gradient));
  x.parameter = sum(s[2], x.moment[0], x.parameter);
}

/// `s` holds 1 - beta1, 1 - beta2, lr, lr * weight decay.
inline void step(zero::lion, states& x, const std::array<float, 4>& s) {
  const auto sign = [](float value) {
    if (value > 0) return 1.0F;
    return value < 0 ? -1.0F : value;  // a zero or NaN is its own sign
  };
  const floats direction = each(sign, interpolated(s[0], x.moment[0], x.gradient));
  x.moment[0] = interpolated(s[1], x.moment[0], x.gradient);
  x.parameter = difference(x.parameter, sum(s[2], direction, scaled(s[3], x.parameter)));
}

/// The whole step: load, update, store, each in passes of its own.
template <class O, class P, class G>
void update(const zero::kernels::update_operands<O, P, G>& operands,
            const std::array<double, O::scalar_count>& scalars, float gradient_scale) {
  using master_type = zero::master_type<P>;
  const auto count = static_cast<std::size_t>(operands.count);
  if (count == 0) return;  // Thrust's copy dereferences the first element before it counts
  std::vector<master_type> masters(count);
  if constexpr (zero::has_master<P>) masters.assign(operands.masters, operands.masters + count);

  states x{floats(count), {}, floats(count)};
  thrust::transform(operands.parameters, operands.parameters + count, masters.begin(),
                    x.parameter.begin(),
                    [](auto stored, auto master) -> float { return P::load(stored, master); });
  const auto widened = [](auto value) { return static_cast<float>(value); };
  thrust::transform(operands.gradients, operands.gradients + count, x.gradient.begin(), widened);
  x.gradient = scaled(gradient_scale, x.gradient);
  for (auto* const moment : operands.moments) {
    x.moment.emplace_back(count);
    thrust::transform(moment, moment + count, x.moment.back().begin(), widened);
  }

  std::array<float, O::scalar_count> constants;
  for (std::size_t k = 0; k < constants.size(); ++k) constants[k] = static_cast<float>(scalars[k]);
  step(O{}, x, constants);

  const auto all = thrust::make_zip_iterator(
      thrust::make_tuple(x.parameter.begin(), operands.parameters, masters.begin()));
  thrust::for_each_n(all, count,
                     thrust::make_zip_function([](float value, auto& stored, auto& master) {
                       P::store(value, stored, master);
                     }));
  if constexpr (zero::has_master<P>) {
    thrust::copy(masters.begin(), masters.end(), operands.masters);
  }
  for (std::size_t k = 0; k < x.moment.size(); ++k) {
    using moment_type = typename P::moment_type;
    thrust::transform(x.moment[k].begin(), x.moment[k].end(), operands.moments[k],
                      [](float value) { return static_cast<moment_type>(value); });
  }
}

}  // namespace passes
