// SPDX-License-Identifier: Apache-2.0
#include <zero/numeric/bfloat16.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include <catch2/catch.hpp>

#include "patterns.hpp"

namespace {

using zero::bfloat16;
namespace nt = numeric_tests;

/// 2^128 - 2^119: halfway between the largest bfloat16 and 2^128.
const double bfloat16_overflow = std::ldexp(511.0, 119);

double expected_bfloat16(float value) {
  return nt::round_to_format(static_cast<double>(value), 8, -126, bfloat16_overflow);
}

bool rounds_as_defined(std::uint32_t bits) {
  const float value = nt::from_pattern(bits);
  const bfloat16 rounded{value};
  if (nt::is_nan_pattern(bits)) {
    return rounded.bits() == ((bits >> 16U) | 0x0040U);
  }
  const float back = static_cast<float>(rounded);
  return static_cast<double>(back) == expected_bfloat16(value) &&
         std::signbit(back) == std::signbit(value);
}

TEST_CASE("bfloat16: every pattern survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const bfloat16 value = bfloat16::from_bits(pattern);
    const auto wide = static_cast<float>(value);
    const bool is_nan = (bits & 0x7FFFU) > 0x7F80U;
    const auto expected = static_cast<std::uint16_t>(is_nan ? bits | 0x0040U : bits);
    if (nt::pattern(wide) != bits << 16U || bfloat16{wide}.bits() != expected ||
        std::isnan(wide) != is_nan) {
      FAIL("pattern " << bits);
    }
  }
}

TEST_CASE("bfloat16: rounding is to nearest, ties to even, for every exponent") {
  nt::for_stratified_patterns([](std::uint32_t bits) {
    if (!rounds_as_defined(bits))
      FAIL("float pattern " << bits);
  });
}

TEST_CASE("bfloat16: known values") {
  CHECK(bfloat16{0.0F}.bits() == 0x0000);
  CHECK(bfloat16{-0.0F}.bits() == 0x8000);
  CHECK(bfloat16{1.0F}.bits() == 0x3F80);
  CHECK(bfloat16{nt::from_pattern(0x3F808000)}.bits() == 0x3F80);  // tie, even below
  CHECK(bfloat16{nt::from_pattern(0x3F818000)}.bits() == 0x3F82);  // tie, even above
  CHECK(bfloat16{nt::from_pattern(0x3F808001)}.bits() == 0x3F81);
  CHECK(bfloat16{std::numeric_limits<float>::max()}.bits() == 0x7F80);
  CHECK(bfloat16{std::numeric_limits<float>::denorm_min()}.bits() == 0x0000);
  CHECK(bfloat16{nt::from_pattern(0x00008001)}.bits() == 0x0001);  // subnormals are kept
  CHECK(bfloat16{std::numeric_limits<float>::infinity()}.bits() == 0x7F80);
  CHECK(bfloat16{nt::from_pattern(0x7F800001)}.bits() == 0x7FC0);  // not infinity
  CHECK(bfloat16{nt::from_pattern(0xFFFFFFFF)}.bits() == 0xFFFF);  // not -0
}

TEST_CASE("bfloat16: comparison is that of numbers") {
  CHECK(bfloat16{0.0F} == bfloat16{-0.0F});
  CHECK(bfloat16{2.0F} == bfloat16{2.0F});
  CHECK(bfloat16{2.0F} != bfloat16{3.0F});
  const bfloat16 nan{std::numeric_limits<float>::quiet_NaN()};
  CHECK(nan != nan);
  CHECK(bfloat16{} == bfloat16{0.0F});
}

TEST_CASE("bfloat16: usable at compile time") {
  static_assert(bfloat16{-1.5F}.bits() == 0xBFC0);
  static_assert(static_cast<float>(bfloat16::from_bits(0x4049)) == 3.140625F);
  SUCCEED();
}

}  // namespace
