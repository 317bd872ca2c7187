// SPDX-License-Identifier: Apache-2.0
#include <zero/numeric/float16.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include <catch2/catch.hpp>

#include "patterns.hpp"

namespace {

using zero::float16;
namespace nt = numeric_tests;

bool rounds_as_defined(std::uint32_t bits) {
  const float value = nt::from_pattern(bits);
  const float16 rounded{value};
  const auto back = static_cast<float>(rounded);
  if (nt::is_nan_pattern(bits)) {
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t payload = (bits >> 13U) & 0x03FFU;
    return rounded.bits() == (sign | 0x7E00U | payload) && std::isnan(back);
  }
  const double expected = nt::round_to_format(static_cast<double>(value), 11, -14, 65520.0);
  return static_cast<double>(back) == expected && std::signbit(back) == std::signbit(value);
}

/// The value of a pattern by the definition of the format.
double value_of(std::uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10U) & 0x1FU);
  const int fraction = static_cast<int>(bits & 0x03FFU);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

TEST_CASE("float16: every pattern survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float16 value = float16::from_bits(static_cast<std::uint16_t>(bits));
    const auto wide = static_cast<float>(value);
    const bool is_nan = (bits & 0x7FFFU) > 0x7C00U;
    const bool is_finite = (bits & 0x7C00U) != 0x7C00U;
    const auto expected = static_cast<std::uint16_t>(is_nan ? bits | 0x0200U : bits);
    if (float16{wide}.bits() != expected || std::isnan(wide) != is_nan ||
        std::isfinite(wide) != is_finite ||
        (is_finite && static_cast<double>(wide) != value_of(bits))) {
      FAIL("pattern " << bits);
    }
  }
}

TEST_CASE("float16: rounding is to nearest, ties to even, for every exponent") {
  nt::for_stratified_patterns([](std::uint32_t bits) {
    if (!rounds_as_defined(bits))
      FAIL("float pattern " << bits);
  });
}

TEST_CASE("float16: known values") {
  CHECK(float16{0.0F}.bits() == 0x0000);
  CHECK(float16{-0.0F}.bits() == 0x8000);
  CHECK(float16{1.0F}.bits() == 0x3C00);
  CHECK(float16{65504.0F}.bits() == 0x7BFF);
  CHECK(float16{65519.0F}.bits() == 0x7BFF);
  CHECK(float16{65520.0F}.bits() == 0x7C00);
  CHECK(float16{-1e30F}.bits() == 0xFC00);
  CHECK(float16{std::ldexp(1.0F, -14)}.bits() == 0x0400);
  CHECK(float16{std::ldexp(1.0F, -24)}.bits() == 0x0001);
  CHECK(float16{std::ldexp(1.0F, -25)}.bits() == 0x0000);  // tie with zero
  CHECK(float16{std::ldexp(1.5F, -25)}.bits() == 0x0001);
  CHECK(float16{std::ldexp(1.5F, -24)}.bits() == 0x0002);         // tie, even above
  CHECK(float16{nt::from_pattern(0x387FE000)}.bits() == 0x0400);  // tie into the normal range
  CHECK(float16{nt::from_pattern(0x387FDFFF)}.bits() == 0x03FF);
  CHECK(float16{nt::from_pattern(0x7F800001)}.bits() == 0x7E00);  // not infinity
}

TEST_CASE("float16: comparison is that of numbers") {
  CHECK(float16{0.0F} == float16{-0.0F});
  CHECK(float16{2.0F} != float16{3.0F});
  const float16 nan{std::numeric_limits<float>::quiet_NaN()};
  CHECK(nan != nan);
  CHECK(float16{} == float16{0.0F});
}

TEST_CASE("float16: usable at compile time") {
  static_assert(float16{-1.5F}.bits() == 0xBE00);
  static_assert(static_cast<float>(float16::from_bits(0x0001)) == 0x1p-24F);
  SUCCEED();
}

}  // namespace
