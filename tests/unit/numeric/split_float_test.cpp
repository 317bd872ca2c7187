// SPDX-License-Identifier: Apache-2.0
#include <zero/numeric/split_float.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include <catch2/catch.hpp>

#include "patterns.hpp"

namespace {

using zero::join_float;
using zero::split_ties_away;
namespace nt = numeric_tests;

/// The nearest multiple of the bf16 spacing at this value, halves away from zero: std::round.
double expected_high(float value) {
  const double wide = static_cast<double>(value);
  if (wide == 0.0)
    return wide;
  const int exponent = std::max(std::ilogb(wide), -126) - 7;
  const double rounded = std::ldexp(std::round(std::ldexp(wide, -exponent)), exponent);
  if (std::fabs(rounded) < std::ldexp(1.0, 128))
    return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), rounded);
}

TEST_CASE("split_float: the upper part is the value rounded with ties away from zero") {
  nt::for_stratified_patterns([](std::uint32_t bits) {
    if (nt::is_nan_pattern(bits))
      return;
    const float value = nt::from_pattern(bits);
    const auto high = static_cast<float>(split_ties_away(value).high);
    if (static_cast<double>(high) != expected_high(value) ||
        std::signbit(high) != std::signbit(value)) {
      FAIL("float pattern " << bits);
    }
  });
}

TEST_CASE("split_float: known values") {
  CHECK(split_ties_away(nt::from_pattern(0x3F808000)).high.bits() == 0x3F81);
  CHECK(split_ties_away(nt::from_pattern(0xBF808000)).high.bits() == 0xBF81);
  CHECK(split_ties_away(nt::from_pattern(0x3F807FFF)).high.bits() == 0x3F80);
  // The rounding overflows, the value comes back all the same.
  const float largest = std::numeric_limits<float>::max();
  CHECK(split_ties_away(largest).high.bits() == 0x7F80);
  CHECK(split_ties_away(largest).low == 0xFFFF);
  CHECK(join_float(split_ties_away(largest).high, 0xFFFF) == largest);
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(join_float(split_ties_away(infinity).high, split_ties_away(infinity).low) == infinity);
  // A payload in the lower half must not turn a NaN into infinity or zero.
  for (const std::uint32_t nan : {0x7F800001U, 0x7FFFFFFFU, 0xFFFFFFFFU, 0xFF808000U}) {
    const auto parts = split_ties_away(nt::from_pattern(nan));
    CHECK(parts.high.bits() == 0x7FC0);
    CHECK(parts.low == 0);
    CHECK(nt::pattern(join_float(parts.high, parts.low)) == 0x7FC00000U);
  }
  static_assert(split_ties_away(1.0F).high.bits() == 0x3F80 && split_ties_away(1.0F).low == 0);
}

}  // namespace
