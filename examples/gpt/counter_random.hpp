// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace gpt {

/// 64 random-looking bits that depend on nothing but the counters.
/// No state: any rank computes any draw, in any order, and all ranks agree.
constexpr std::uint64_t counter_hash(std::initializer_list<std::uint64_t> counters) {
  std::uint64_t hash = 0;
  for (const std::uint64_t counter : counters) {
    hash = (hash + 0x9e3779b97f4a7c15u) ^ counter;
    // The finaliser of SplitMix64: a bijection in which every input bit reaches every output bit.
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  }
  return hash;
}

/// Hash bits as a number in [0, 1), in steps of 2^-53.
constexpr double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// A draw from the standard normal distribution (Box and Muller's formula, one of its two values).
inline double standard_normal(std::uint64_t seed, std::uint64_t key, std::uint64_t index) {
  // 1 - u lies in (0, 1], so that the logarithm is finite.
  const double radius_draw = 1.0 - unit_interval(counter_hash({seed, key, index, 0}));
  const double angle_draw = unit_interval(counter_hash({seed, key, index, 1}));
  return std::sqrt(-2.0 * std::log(radius_draw)) *
         std::cos(2.0 * std::numbers::pi * angle_draw);
}

}  // namespace gpt
