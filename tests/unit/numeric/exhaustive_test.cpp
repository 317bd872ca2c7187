// SPDX-License-Identifier: Apache-2.0
// labels: slow
// timeout: 300
#include <cmath>
#include <cstdint>

#include <catch2/catch.hpp>
#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/float16.hpp>
#include <zero/numeric/split_float.hpp>

#include "patterns.hpp"

namespace {

namespace nt = numeric_tests;

TEST_CASE("split_float: splitting and joining gives back all 2^32 patterns, NaN canonical") {
  std::uint64_t wrong = 0;
  for (std::uint64_t k = 0; k < (std::uint64_t{1} << 32U); ++k) {
    const auto bits = static_cast<std::uint32_t>(k);
    const zero::split_float parts = zero::split_ties_away(nt::from_pattern(bits));
    const std::uint32_t back = nt::pattern(zero::join_float(parts.high, parts.low));
    const std::uint32_t expected = nt::is_nan_pattern(bits) ? 0x7FC00000U : bits;
    wrong += back != expected ? 1U : 0U;
  }
  CHECK(wrong == 0);
}

/// The distances to both neighbours decide; a neighbour beyond the range counts as 2^128.
bool bfloat16_is_nearest(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x7F800000U) return true;  // unit test
  const std::uint32_t below = magnitude >> 16U;
  const auto value = static_cast<double>(nt::from_pattern(magnitude));
  const auto lower = static_cast<double>(nt::from_pattern(below << 16U));
  const double upper = below == 0x7F7FU
                           ? 0x1p128
                           : static_cast<double>(nt::from_pattern((below + 1U) << 16U));
  const double down = value - lower;
  const double up = upper - value;
  const bool rounds_up = up < down || (up == down && below % 2 == 1);
  const std::uint32_t expected = ((bits >> 16U) & 0x8000U) | (rounds_up ? below + 1U : below);
  return zero::bfloat16{nt::from_pattern(bits)}.bits() == expected;
}

TEST_CASE("bfloat16: conversion from float (all 2^32 patterns under ZERO_FULL)") {
  std::uint64_t wrong = 0;
  nt::for_all_patterns(17, [&](std::uint32_t bits) { wrong += bfloat16_is_nearest(bits) ? 0U : 1U; });
  CHECK(wrong == 0);
}

TEST_CASE("float16: conversion from float (all 2^32 patterns under ZERO_FULL)") {
  std::uint64_t wrong = 0;
  nt::for_all_patterns(101, [&](std::uint32_t bits) {
    if (nt::is_nan_pattern(bits)) return;
    const float value = nt::from_pattern(bits);
    const double expected = nt::round_to_format(static_cast<double>(value), 11, -14, 65520.0);
    const auto back = static_cast<double>(static_cast<float>(zero::float16{value}));
    wrong += back == expected && std::signbit(back) == std::signbit(expected) ? 0U : 1U;
  });
  CHECK(wrong == 0);
}

}  // namespace
