// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

namespace numeric_tests {

inline bool full_run() {
  return std::getenv("ZERO_FULL") != nullptr;
}

inline float from_pattern(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline std::uint32_t pattern(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

inline bool is_nan_pattern(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFU) > 0x7F800000U;
}

/// Calls check(bits) for every sign and exponent with the fractions around every point at which a
/// rounding to 8, 11 or fewer bits changes, and with a spread of others.
template <class Check>
void for_stratified_patterns(Check check) {
  std::vector<std::uint32_t> fractions;
  for (std::uint32_t bit = 0; bit < 23; ++bit) {
    for (std::uint32_t odd = 0; odd < 4; ++odd) {
      // Halfway cases below an even and an odd kept part, and their neighbours.
      const std::uint32_t tie = (odd << (bit + 1U)) | (1U << bit);
      for (const std::uint32_t delta : {~0U, 0U, 1U}) {
        fractions.push_back((tie + delta) & 0x007FFFFFU);
        fractions.push_back((0x00800000U - tie + delta) & 0x007FFFFFU);
      }
    }
  }
  for (std::uint32_t k = 0; k < 64; ++k)
    fractions.push_back((k * 2654435761U) >> 9U);
  for (std::uint32_t upper = 0; upper < 512; ++upper) {
    for (const std::uint32_t fraction : fractions)
      check((upper << 23U) | fraction);
  }
}

/// Calls check(bits) for all patterns under ZERO_FULL, otherwise for one in `stride` (odd).
template <class Check>
void for_all_patterns(std::uint64_t stride, Check check) {
  const std::uint64_t step = full_run() ? 1 : stride;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32U); bits += step) {
    check(static_cast<std::uint32_t>(bits));
  }
}

/// value rounded to a multiple of 2^exponent, ties to even, in double arithmetic.
inline double round_to_multiple(double value, int exponent) {
  return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

/// The rounding to a binary format with `precision` bits, by its definition: independent of the
/// integer code under test.
inline double round_to_format(double value, int precision, int minimum_exponent,
                              double overflow_threshold) {
  if (value == 0.0)
    return value;
  if (std::fabs(value) >= overflow_threshold) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  const int exponent = std::max(std::ilogb(value), minimum_exponent);
  return round_to_multiple(value, exponent - (precision - 1));
}

}  // namespace numeric_tests
