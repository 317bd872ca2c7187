// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

// Scalar code in a form that compilers turn into vector instructions.
namespace gpt {

/// e^x for gradient checks.
inline double exponential(double x) { return std::exp(x); }

/// e^x with a relative error below 2e-7, without branch or call; x is clamped to [-87, 88].
inline float exponential(float x) {
  constexpr float log2_e = 1.44269504f;
  constexpr float ln2_high = 0.693359375f;  // few bits: n * ln2_high is exact
  constexpr float ln2_low = -2.12194440e-4f;
  // Adding 1.5 * 2^23 leaves no bit for a fraction: the sum is rounded to the nearest integer.
  constexpr float rounder = 12582912.0f;
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * log2_e + rounder;
  const float n = shifted - rounder;
  const float r = (x - n * ln2_high) - n * ln2_low;  // |r| <= ln(2) / 2
  // Taylor's polynomial of e^r up to r^7 / 7!: the next term is below 6e-9.
  float polynomial = 1.0f / 5040.0f;
  polynomial = polynomial * r + 1.0f / 720.0f;
  polynomial = polynomial * r + 1.0f / 120.0f;
  polynomial = polynomial * r + 1.0f / 24.0f;
  polynomial = polynomial * r + 1.0f / 6.0f;
  polynomial = polynomial * r + 0.5f;
  polynomial = polynomial * r + 1.0f;
  polynomial = polynomial * r + 1.0f;
  // The low bits of `shifted` hold n; moved to the exponent they multiply by 2^n.
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u;
  return polynomial * std::bit_cast<float>(exponent);
}

/// The sum of value(0) ... value(count - 1) in a fixed order: eight running sums, then a tree.
/// One running sum could not be split over vector lanes without changing its order.
template <class Real, class Value>
Real lane_sum(std::uint64_t count, Value value) {
  std::array<Real, 8> lanes{};
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::uint64_t lane = 0; lane < 8; ++lane) {
      lanes[lane] += value(i + lane);
    }
  }
  for (std::uint64_t lane = 0; i < count; ++i, ++lane) {
    lanes[lane] += value(i);
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// The largest of count > 0 numbers.
template <class Real>
Real lane_maximum(std::uint64_t count, const Real* x) {
  std::array<Real, 8> lanes;
  lanes.fill(x[0]);
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::uint64_t lane = 0; lane < 8; ++lane) {
      lanes[lane] = lanes[lane] < x[i + lane] ? x[i + lane] : lanes[lane];
    }
  }
  for (; i < count; ++i) {
    lanes[0] = lanes[0] < x[i] ? x[i] : lanes[0];
  }
  Real largest = lanes[0];
  for (const Real lane : lanes) {
    largest = largest < lane ? lane : largest;
  }
  return largest;
}

}  // namespace gpt
