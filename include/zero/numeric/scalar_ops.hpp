// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>

namespace zero {
namespace detail {

/// Hides from the compiler where a value came from, at no cost.
///
/// Compilers may fuse a product with a later sum into one rounding, g++ even across intrinsics,
/// and they decide by flags and version. A product that passes through here is rounded first.
template <std::floating_point T>
inline T opaque(T value) noexcept {
#if defined(__x86_64__)
  asm("" : "+x"(value));
#elif defined(__aarch64__)
  asm("" : "+w"(value));
#else
  asm("" : "+m"(value));
#endif
  return value;
}

}  // namespace detail

/// The operations of an element-wise update on one element; the model of what every `Ops` offers.
///
/// Every implementation (this one, AVX2, AVX-512, CUDA) rounds each operation once, to nearest
/// even, and so gives the same bits, the payload of a NaN excepted. In an implementation with
/// several lanes `lane_type` is a class; use it by value in local variables, by reference in
/// signatures.
template <std::floating_point T>
struct scalar_ops {
  using value_type = T;
  using lane_type = T;
  /// Partial sums of squares, one per lane.
  using square_sums = double;
  static constexpr std::size_t lanes = 1;

  static T set(T value) noexcept { return value; }
  static T load(const T* source) noexcept { return *source; }
  static void store(T* target, const T& a) noexcept { *target = a; }

  /// a * b + c with one rounding.
  static T fma(const T& a, const T& b, const T& c) noexcept { return std::fma(a, b, c); }
  /// Never fused with what follows.
  static T mul(const T& a, const T& b) noexcept { return detail::opaque(a * b); }
  static T add(const T& a, const T& b) noexcept { return a + b; }
  static T sub(const T& a, const T& b) noexcept { return a - b; }
  static T div(const T& a, const T& b) noexcept { return a / b; }
  static T sqrt(const T& a) noexcept { return std::sqrt(a); }
  static T negate(const T& a) noexcept { return -a; }
  /// a where a < b, else b (also where one of them is NaN).
  static T min(const T& a, const T& b) noexcept { return a < b ? a : b; }
  /// a where a > b, else b (also where one of them is NaN).
  static T max(const T& a, const T& b) noexcept { return a > b ? a : b; }
  /// x where a < b, else y.
  static T select(const T& a, const T& b, const T& x, const T& y) noexcept { return a < b ? x : y; }
  /// 1 above zero, -1 below zero, otherwise the argument itself (a zero or NaN).
  static T sign(const T& a) noexcept { return a > T(0) ? T(1) : (a < T(0) ? T(-1) : a); }

  /// sums += a * a in double.
  static void add_squares(square_sums& sums, const T& a) noexcept {
    const double wide = static_cast<double>(a);
    sums += detail::opaque(wide * wide);
  }
  static void store_sums(double* target, const square_sums& sums) noexcept { *target = sums; }
};

}  // namespace zero
