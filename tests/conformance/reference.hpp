// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <zero/numeric/element_traits.hpp>
#include <zero/range.hpp>

// Data and expected results of the communicator contract, computed without the library's kernels.

namespace zero::test {

/// A well mixed 64-bit word for each (rank, index).
constexpr std::uint64_t mix(std::uint64_t rank, std::uint64_t index) {
  std::uint64_t z = (index + 1) * 0x9E3779B97F4A7C15U + rank * 0xD1B54A32D192ED03U;
  z = (z ^ (z >> 32U)) * 0xD6E8FEB86659FD93U;
  return z ^ (z >> 32U);
}

/// The element type's value nearest to a number, or its low bits for bit patterns.
template <class T>
T element_of(double value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value));
  } else if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return T(static_cast<float>(value));
  }
}

/// From -7 to 7: sums over up to 16 ranks are exact in every element type and in any order.
struct small_integers {
  template <class T>
  static T at(int rank, std::uint64_t index) {
    return element_of<T>(static_cast<double>(mix(static_cast<std::uint64_t>(rank), index) % 15) -
                         7.0);
  }
};

/// From -1 to 1, so that another order of summation gives other bits.
struct random_fractions {
  template <class T>
  static T at(int rank, std::uint64_t index) {
    const std::uint64_t word = mix(static_cast<std::uint64_t>(rank), index) >> 11U;
    return element_of<T>(static_cast<double>(word) * 0x1p-52 - 1.0);
  }
};

/// The rank_tree sum, said in another way than the library says it: neighbours are added in pairs,
/// level by level, and one without a neighbour moves up as it is.
template <class Value>
Value pairwise_sum(Value* terms, std::size_t count) {
  while (count > 1) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < count; i += 2) {
      terms[next++] = i + 1 < count ? terms[i] + terms[i + 1] : terms[i];
    }
    count = next;
  }
  return terms[0];
}

/// What a reduce-scatter of `Data` over T must deliver as U at this index of the full range.
template <class Data, class T, class U>
U expected_sum(int size, std::uint64_t index, float scale) {
  using compute_type = typename element_traits<T>::compute_type;
  compute_type terms[16];
  for (int rank = 0; rank < size; ++rank) {
    terms[rank] = static_cast<compute_type>(Data::template at<T>(rank, index));
  }
  const compute_type sum = pairwise_sum(terms, static_cast<std::size_t>(size));
  return static_cast<U>(sum * static_cast<compute_type>(scale));
}

template <class Data, class T>
void fill(std::vector<T>& values, int rank, std::uint64_t first = 0) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = Data::template at<T>(rank, first + i);
  }
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// With enough digits to tell neighbours apart.
template <class T>
std::string shown(const T& value) {
  if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    char text[32];
    if constexpr (std::is_same_v<T, double>) {
      std::snprintf(text, sizeof text, "%.17g", value);
    } else {
      std::snprintf(text, sizeof text, "%.9g", static_cast<double>(static_cast<float>(value)));
    }
    return text;
  }
}

/// "" when values[i] has the bits of expected(i) for all i < count, else a text with the first.
template <class T, class Expected>
std::string first_difference(const T* values, std::uint64_t count, Expected expected) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const T wanted = expected(i);
    if (!same_bits(values[i], wanted)) {
      return "element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
             shown(values[i]) + ", expected " + shown(wanted);
    }
  }
  return {};
}

}  // namespace zero::test
