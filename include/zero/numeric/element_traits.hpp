// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/float16.hpp>

namespace zero {

/// What the library has to know about an element type: its name, its id on the wire, and the type
/// in which it is summed. Specialise it for a type of your own.
template <class T>
struct element_traits;

template <>
struct element_traits<float> {
  using compute_type = float;
  static constexpr std::string_view name = "float32";
  static constexpr std::uint32_t wire_id = 1;
};

template <>
struct element_traits<double> {
  using compute_type = double;
  static constexpr std::string_view name = "float64";
  static constexpr std::uint32_t wire_id = 2;
};

template <>
struct element_traits<bfloat16> {
  using compute_type = float;
  static constexpr std::string_view name = "bfloat16";
  static constexpr std::uint32_t wire_id = 3;
};

template <>
struct element_traits<float16> {
  using compute_type = float;
  static constexpr std::string_view name = "float16";
  static constexpr std::uint32_t wire_id = 4;
};

/// Bit patterns that are moved and never summed as numbers: remainders, hashes.
template <>
struct element_traits<std::uint16_t> {
  using compute_type = std::uint16_t;
  static constexpr std::string_view name = "uint16";
  static constexpr std::uint32_t wire_id = 5;
};

template <>
struct element_traits<std::uint64_t> {
  using compute_type = std::uint64_t;
  static constexpr std::string_view name = "uint64";
  static constexpr std::uint32_t wire_id = 6;
};

}  // namespace zero
