// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <zero/config.hpp>
#include <zero/numeric/bit_cast.hpp>

namespace zero {

/// IEEE 754 binary16: 5 exponent bits, 10 fraction bits. Storage only, no arithmetic.
///
/// Conversion from float rounds to nearest, ties to even, subnormals included; from 65520 on it
/// gives infinity. NaN stays NaN and becomes quiet in both directions, with its sign and the
/// payload bits that fit, exactly as the F16C instructions do (on a GPU only a quiet NaN remains).
class float16 {
 public:
  constexpr float16() noexcept = default;
  explicit ZERO_HOST_DEVICE constexpr float16(float value) noexcept
      : bits_(round_to_nearest_even(value)) {}

  /// The value that has this bit pattern.
  static ZERO_HOST_DEVICE constexpr float16 from_bits(std::uint16_t bits) noexcept {
    float16 result{};
    result.bits_ = bits;
    return result;
  }

  ZERO_HOST_DEVICE constexpr std::uint16_t bits() const noexcept { return bits_; }

  /// Exact; a signalling NaN becomes quiet.
  explicit ZERO_HOST_DEVICE constexpr operator float() const noexcept {
#if defined(__CUDA_ARCH__)
    if (!__builtin_is_constant_evaluated()) {
      float wide = 0;
      asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits_));
      return wide;
    }
#endif
    return detail::bit_cast<float>(widen(bits_));
  }

  /// Compares as numbers: -0 equals +0, NaN equals nothing.
  friend ZERO_HOST_DEVICE constexpr bool operator==(float16 a, float16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }

 private:
  static ZERO_HOST_DEVICE constexpr std::uint16_t round_to_nearest_even(float value) noexcept {
#if defined(__CUDA_ARCH__)
    // One instruction that keeps subnormals; it differs in the payload of a NaN only.
    if (!__builtin_is_constant_evaluated()) {
      std::uint16_t rounded = 0;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
      return rounded;
    }
#endif
    const auto bits = detail::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    return static_cast<std::uint16_t>(sign | round_magnitude(magnitude));
  }

  static ZERO_HOST_DEVICE constexpr std::uint32_t round_magnitude(
      std::uint32_t magnitude) noexcept {
    constexpr std::uint32_t infinity = 0x7C00U;
    if (magnitude > 0x7F800000U) return infinity | 0x0200U | ((magnitude >> 13U) & 0x03FFU);
    if (magnitude >= 0x477FF000U) return infinity;  // 65520: the tie between 65504 and 2^16
    if (magnitude >= 0x38800000U) {                 // 2^-14: the smallest normal result
      // Exponents 113..142 become 1..30; the carry of the rounding runs into the exponent.
      const std::uint32_t rounded = magnitude + 0x0FFFU + ((magnitude >> 13U) & 1U);
      return (rounded - 0x38000000U) >> 13U;
    }
    if (magnitude <= 0x33000000U) return 0;  // 2^-25: the tie between 0 and the smallest subnormal
    // The value is significand * 2^(exponent - 150); the result counts units of 2^-24.
    const std::uint32_t exponent = magnitude >> 23U;
    const std::uint32_t significand = (magnitude & 0x007FFFFFU) | 0x00800000U;
    const std::uint32_t shift = 126U - exponent;  // 14..24
    const std::uint32_t half = (1U << (shift - 1U)) - 1U + ((significand >> shift) & 1U);
    return (significand + half) >> shift;
  }

  static ZERO_HOST_DEVICE constexpr std::uint32_t widen(std::uint16_t bits) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
    const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
    const std::uint32_t fraction = bits & 0x03FFU;
    if (exponent == 0x1FU) {
      const std::uint32_t quiet = fraction == 0 ? 0U : 0x00400000U;
      return sign | 0x7F800000U | quiet | (fraction << 13U);
    }
    if (exponent != 0) return sign | ((exponent + 112U) << 23U) | (fraction << 13U);
    // Subnormal: a count of 2^-24, which a float holds exactly.
    return sign | detail::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
  }

  std::uint16_t bits_;
};

static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16>);
static_assert(std::is_trivially_default_constructible_v<float16>);
static_assert(float16{1.0F}.bits() == 0x3C00 && float16{65520.0F}.bits() == 0x7C00);

}  // namespace zero
