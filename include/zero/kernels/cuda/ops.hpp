// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <zero/config.hpp>
#include <zero/numeric/scalar_ops.hpp>

namespace zero::kernels::cuda {
namespace rounded {

// Every operation rounds once. The intrinsics are used where a plain operator would do the same
// today, because ptxas may fuse an operator's result into a later sum, and an intrinsic's never.
#if defined(__CUDA_ARCH__)

ZERO_HOST_DEVICE inline float fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
ZERO_HOST_DEVICE inline float mul(float a, float b) {
  return __fmul_rn(a, b);
}
ZERO_HOST_DEVICE inline float add(float a, float b) {
  return __fadd_rn(a, b);
}
ZERO_HOST_DEVICE inline float sub(float a, float b) {
  return __fsub_rn(a, b);
}
ZERO_HOST_DEVICE inline float div(float a, float b) {
  return __fdiv_rn(a, b);
}
ZERO_HOST_DEVICE inline float sqrt(float a) {
  return __fsqrt_rn(a);
}
ZERO_HOST_DEVICE inline double fma(double a, double b, double c) {
  return __fma_rn(a, b, c);
}
ZERO_HOST_DEVICE inline double mul(double a, double b) {
  return __dmul_rn(a, b);
}
ZERO_HOST_DEVICE inline double add(double a, double b) {
  return __dadd_rn(a, b);
}
ZERO_HOST_DEVICE inline double sub(double a, double b) {
  return __dsub_rn(a, b);
}
ZERO_HOST_DEVICE inline double div(double a, double b) {
  return __ddiv_rn(a, b);
}
ZERO_HOST_DEVICE inline double sqrt(double a) {
  return __dsqrt_rn(a);
}

#else

template <std::floating_point T>
ZERO_HOST_DEVICE inline T fma(T a, T b, T c) {
  return scalar_ops<T>::fma(a, b, c);
}
template <std::floating_point T>
ZERO_HOST_DEVICE inline T mul(T a, T b) {
  return scalar_ops<T>::mul(a, b);
}
template <std::floating_point T>
ZERO_HOST_DEVICE inline T add(T a, T b) {
  return scalar_ops<T>::add(a, b);
}
template <std::floating_point T>
ZERO_HOST_DEVICE inline T sub(T a, T b) {
  return scalar_ops<T>::sub(a, b);
}
template <std::floating_point T>
ZERO_HOST_DEVICE inline T div(T a, T b) {
  return scalar_ops<T>::div(a, b);
}
template <std::floating_point T>
ZERO_HOST_DEVICE inline T sqrt(T a) {
  return scalar_ops<T>::sqrt(a);
}

#endif

}  // namespace rounded

/// The Ops of device code: what scalar_ops computes, bit for bit, in the registers of one thread.
///
/// On the host it is scalar_ops, so a kernel body that a test runs there computes the same.
template <std::floating_point T>
struct cuda_ops {
  using value_type = T;
  using lane_type = T;
  using square_sums = double;
  static constexpr std::size_t lanes = 1;

  static ZERO_HOST_DEVICE T set(T value) noexcept { return value; }
  static ZERO_HOST_DEVICE T load(const T* source) noexcept { return *source; }
  static ZERO_HOST_DEVICE void store(T* target, const T& a) noexcept { *target = a; }

  static ZERO_HOST_DEVICE T fma(const T& a, const T& b, const T& c) noexcept {
    return rounded::fma(a, b, c);
  }
  static ZERO_HOST_DEVICE T mul(const T& a, const T& b) noexcept { return rounded::mul(a, b); }
  static ZERO_HOST_DEVICE T add(const T& a, const T& b) noexcept { return rounded::add(a, b); }
  static ZERO_HOST_DEVICE T sub(const T& a, const T& b) noexcept { return rounded::sub(a, b); }
  static ZERO_HOST_DEVICE T div(const T& a, const T& b) noexcept { return rounded::div(a, b); }
  static ZERO_HOST_DEVICE T sqrt(const T& a) noexcept { return rounded::sqrt(a); }
  static ZERO_HOST_DEVICE T negate(const T& a) noexcept { return -a; }
  // Comparisons as scalar_ops makes them: fmin and fmax treat NaN and signed zeros differently.
  static ZERO_HOST_DEVICE T min(const T& a, const T& b) noexcept { return a < b ? a : b; }
  static ZERO_HOST_DEVICE T max(const T& a, const T& b) noexcept { return a > b ? a : b; }
  static ZERO_HOST_DEVICE T select(const T& a, const T& b, const T& x, const T& y) noexcept {
    return a < b ? x : y;
  }
  static ZERO_HOST_DEVICE T sign(const T& a) noexcept {
    return a > T(0) ? T(1) : (a < T(0) ? T(-1) : a);
  }

  static ZERO_HOST_DEVICE void add_squares(square_sums& sums, const T& a) noexcept {
    const double wide = static_cast<double>(a);
    if constexpr (std::is_same_v<T, float>) {
      sums = rounded::fma(wide, wide, sums);  // the square is exact: one rounding either way
    } else {
      sums = rounded::add(sums, rounded::mul(wide, wide));
    }
  }
  static ZERO_HOST_DEVICE void store_sums(double* target, const square_sums& sums) noexcept {
    *target = sums;
  }
};

}  // namespace zero::kernels::cuda
