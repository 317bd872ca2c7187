// SPDX-License-Identifier: Apache-2.0
// labels: slow
// timeout: 600
#include <cmath>
#include <cstdint>
#include <vector>

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

/// The magnitudes of a 16-bit format by pattern, infinity included as the power of two that would
/// follow the largest number: rounding treats it as that.
template <class T>
std::vector<double> magnitudes(std::uint32_t infinity, double beyond) {
  std::vector<double> values(infinity + 1);
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    const T value = T::from_bits(static_cast<std::uint16_t>(bits));
    values[bits] = static_cast<double>(static_cast<float>(value));
  }
  values[infinity] = beyond;
  return values;
}

/// Whether no neighbour is nearer, and a tie went to the even pattern.
bool is_nearest(double value, std::uint32_t bits, const std::vector<double>& values) {
  const double distance = std::fabs(value - values[bits]);
  const auto loses = [&](double other) {
    return other < distance || (other == distance && bits % 2 == 1);
  };
  if (bits > 0 && loses(std::fabs(value - values[bits - 1])))
    return false;
  return bits + 1 == values.size() || !loses(std::fabs(value - values[bits + 1]));
}

template <class T>
std::uint64_t count_wrong_roundings(const std::vector<double>& values) {
  std::uint64_t wrong = 0;
  nt::for_all_patterns(61, [&](std::uint32_t bits) {
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude >= 0x7F800000U)
      return;  // infinity and NaN: tested by value
    const std::uint32_t rounded = T{nt::from_pattern(bits)}.bits();
    const auto value = static_cast<double>(nt::from_pattern(magnitude));
    // Beyond the range every value is infinity, however near it is to a number.
    const std::uint32_t kept = rounded & 0x7FFFU;
    const bool overflows = value >= values.back();
    const bool right = overflows ? kept + 1 == values.size() : is_nearest(value, kept, values);
    wrong += right && (rounded >> 15U) == (bits >> 31U) ? 0U : 1U;
  });
  return wrong;
}

TEST_CASE("bfloat16: conversion from float (all 2^32 patterns under ZERO_FULL)") {
  const auto values = magnitudes<zero::bfloat16>(0x7F80U, 0x1p128);
  CHECK(count_wrong_roundings<zero::bfloat16>(values) == 0);
}

TEST_CASE("float16: conversion from float (all 2^32 patterns under ZERO_FULL)") {
  const auto values = magnitudes<zero::float16>(0x7C00U, 0x1p16);
  CHECK(count_wrong_roundings<zero::float16>(values) == 0);
}

}  // namespace
