// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <zero/config.hpp>
#include <zero/numeric/bit_cast.hpp>

namespace zero {

/// The upper half of an fp32 value: 8 exponent bits, 7 fraction bits. Storage only, no arithmetic.
///
/// Conversion from float rounds to nearest, ties to even, on every machine in the same way: the
/// instructions of x86 flush subnormals and are therefore not used. NaN stays NaN and becomes
/// quiet; its sign and upper payload bits are kept, except on a GPU.
class bfloat16 {
 public:
  constexpr bfloat16() noexcept = default;
  explicit ZERO_HOST_DEVICE constexpr bfloat16(float value) noexcept
      : bits_(round_to_nearest_even(value)) {}

  /// The value that has this bit pattern.
  static ZERO_HOST_DEVICE constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 result{};
    result.bits_ = bits;
    return result;
  }

  ZERO_HOST_DEVICE constexpr std::uint16_t bits() const noexcept { return bits_; }

  /// Exact.
  explicit ZERO_HOST_DEVICE constexpr operator float() const noexcept {
    return detail::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16U);
  }

  /// Compares as numbers: -0 equals +0, NaN equals nothing.
  friend ZERO_HOST_DEVICE constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }

 private:
  static ZERO_HOST_DEVICE constexpr std::uint16_t round_to_nearest_even(float value) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    // One instruction that keeps subnormals; it differs in the payload of a NaN only.
    if (!__builtin_is_constant_evaluated()) {
      std::uint16_t rounded = 0;
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
      return rounded;
    }
#endif
    const auto bits = detail::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
      return static_cast<std::uint16_t>((bits >> 16U) | 0x0040U);
    }
    // Half a unit, less one when the kept part is even; a carry moves on into the exponent, which
    // is what rounding up to the next binade, or to infinity, means.
    const std::uint32_t half = 0x7FFFU + ((bits >> 16U) & 1U);
    return static_cast<std::uint16_t>((bits + half) >> 16U);
  }

  std::uint16_t bits_;
};

static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);
static_assert(std::is_trivially_default_constructible_v<bfloat16>);
static_assert(bfloat16{1.0F}.bits() == 0x3F80);

}  // namespace zero
