// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <zero/config.hpp>
#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/bit_cast.hpp>

namespace zero {

/// An fp32 value in two 16-bit parts: its bf16 rounding, and its own lower half.
struct split_float {
  bfloat16 high;
  std::uint16_t low;
};

/// Rounds to bf16 with ties away from zero and keeps the bits that are needed to undo it.
///
/// The rounding adds 2^15 to the pattern and cuts it, so the upper half grew by one exactly when
/// the top bit of the lower half is set: `join_float` sees that bit and takes the one back. This
/// holds for every pattern of a number, also where the rounding overflows to infinity. Every NaN
/// becomes the canonical one, 0x7FC00000, because a payload could be rounded into a number.
ZERO_HOST_DEVICE constexpr split_float split_ties_away(float value) noexcept {
  std::uint32_t bits = detail::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) bits = 0x7FC00000U;
  const auto high = static_cast<std::uint16_t>((bits + 0x8000U) >> 16U);
  return {bfloat16::from_bits(high), static_cast<std::uint16_t>(bits & 0xFFFFU)};
}

/// The exact inverse of `split_ties_away`.
ZERO_HOST_DEVICE constexpr float join_float(bfloat16 high, std::uint16_t low) noexcept {
  const std::uint32_t joined = (static_cast<std::uint32_t>(high.bits()) << 16U) | low;
  const std::uint32_t carry = (low & 0x8000U) << 1U;
  return detail::bit_cast<float>(joined - carry);
}

}  // namespace zero
