// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace zero {

/// The upper half of an fp32 value: 8 exponent bits, 7 fraction bits. Storage only, no arithmetic.
///
/// Conversion from float rounds to nearest, ties to even, on every machine in the same way: the
/// hardware instructions flush subnormals and are therefore not used. NaN stays NaN and becomes
/// quiet; its sign and upper payload bits are kept.
class bfloat16 {
 public:
  constexpr bfloat16() noexcept = default;
  explicit constexpr bfloat16(float value) noexcept
      : bits_(round_to_nearest_even(std::bit_cast<std::uint32_t>(value))) {}

  /// The value that has this bit pattern.
  static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 result{};
    result.bits_ = bits;
    return result;
  }

  constexpr std::uint16_t bits() const noexcept { return bits_; }

  /// Exact.
  explicit constexpr operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16U);
  }

  /// Compares as numbers: -0 equals +0, NaN equals nothing.
  friend constexpr bool operator==(bfloat16 a, bfloat16 b) noexcept {
    return static_cast<float>(a) == static_cast<float>(b);
  }

 private:
  static constexpr std::uint16_t round_to_nearest_even(std::uint32_t bits) noexcept {
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
