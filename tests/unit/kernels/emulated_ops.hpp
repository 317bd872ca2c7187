// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <zero/numeric/scalar_ops.hpp>

namespace kernel_tests {

/// Ops with any number of lanes in plain arrays, none of the direct conversions: what a kernel does
/// with lanes can be tested where the CPU has no vectors of that width.
template <std::size_t Lanes>
struct emulated_ops {
  using scalar = zero::scalar_ops<float>;
  using value_type = float;
  using lane_type = std::array<float, Lanes>;
  using square_sums = std::array<double, Lanes>;
  static constexpr std::size_t lanes = Lanes;

  template <class Function>
  static lane_type each(Function function) {
    lane_type result;
    for (std::size_t i = 0; i < Lanes; ++i)
      result[i] = function(i);
    return result;
  }

  static lane_type set(float a) {
    return each([&](std::size_t) { return a; });
  }
  static lane_type load(const float* source) {
    return each([&](std::size_t i) { return source[i]; });
  }
  static void store(float* target, const lane_type& a) {
    for (std::size_t i = 0; i < Lanes; ++i)
      target[i] = a[i];
  }
  static lane_type fma(const lane_type& a, const lane_type& b, const lane_type& c) {
    return each([&](std::size_t i) { return scalar::fma(a[i], b[i], c[i]); });
  }
  static lane_type mul(const lane_type& a, const lane_type& b) {
    return each([&](std::size_t i) { return scalar::mul(a[i], b[i]); });
  }
  static lane_type add(const lane_type& a, const lane_type& b) {
    return each([&](std::size_t i) { return scalar::add(a[i], b[i]); });
  }
  static lane_type sub(const lane_type& a, const lane_type& b) {
    return each([&](std::size_t i) { return scalar::sub(a[i], b[i]); });
  }
  static lane_type div(const lane_type& a, const lane_type& b) {
    return each([&](std::size_t i) { return scalar::div(a[i], b[i]); });
  }
  static lane_type sqrt(const lane_type& a) {
    return each([&](std::size_t i) { return scalar::sqrt(a[i]); });
  }
  static lane_type negate(const lane_type& a) {
    return each([&](std::size_t i) { return scalar::negate(a[i]); });
  }
  static lane_type sign(const lane_type& a) {
    return each([&](std::size_t i) { return scalar::sign(a[i]); });
  }
  static void add_squares(square_sums& sums, const lane_type& a) {
    for (std::size_t i = 0; i < Lanes; ++i)
      scalar::add_squares(sums[i], a[i]);
  }
  static void store_sums(double* target, const square_sums& sums) {
    for (std::size_t i = 0; i < Lanes; ++i)
      target[i] = sums[i];
  }
};

}  // namespace kernel_tests
