// SPDX-License-Identifier: Apache-2.0
#include <zero/kernels/cast.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "emulated_ops.hpp"
#include "kernel_cases.hpp"

namespace {

using namespace kernel_tests;
using zero::bfloat16;
using zero::float16;

std::vector<isa> all_paths() {
  auto paths = vector_paths();
  paths.push_back(isa::scalar);
  return paths;
}

template <class T>
std::vector<T> mixed_values(std::size_t count) {
  sequence values(count);
  std::vector<T> result(count);
  for (T& value : result)
    value = static_cast<T>(mixed_value(values));
  return result;
}

using pairs =
    std::tuple<std::pair<float, bfloat16>, std::pair<float, float16>, std::pair<bfloat16, float>,
               std::pair<float16, float>, std::pair<bfloat16, float16>,
               std::pair<float16, bfloat16>, std::pair<float, float>, std::pair<bfloat16, bfloat16>,
               std::pair<double, float>, std::pair<bfloat16, double>>;

/// The conversion of one element, through the type in which the library computes.
template <class A, class B>
B convert_one(const A& value) {
  if constexpr (std::is_same_v<A, B>) {
    return value;
  } else {
    return static_cast<B>(static_cast<float>(value));
  }
}

TEMPLATE_LIST_TEST_CASE("cast: every count, bit for bit the element conversion", "", pairs) {
  using A = typename TestType::first_type;
  using B = typename TestType::second_type;
  for (std::size_t count = 0; count <= 100; ++count) {
    const auto input = mixed_values<A>(count + 1);
    for (const isa path : all_paths()) {
      std::vector<B> output(count + 1, static_cast<B>(5.0F));
      zero::kernels::convert(zero::host_space{}, input.data() + 1, output.data(), count, path);
      for (std::size_t i = 0; i < count; ++i) {
        if (!same(output[i], convert_one<A, B>(input[i + 1]))) {
          FAIL(zero::kernels::cpu::isa_name(path) << ", count " << count << ", element " << i);
        }
      }
      if (!same(output[count], static_cast<B>(5.0F)))
        FAIL("wrote behind the end");
    }
  }
}

/// All 65,536 patterns, and float patterns next to every rounding boundary of both formats.
std::vector<float> boundary_floats() {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000U; ++upper) {
    for (const std::uint32_t lower :
         {0x0000U, 0x0FFFU, 0x1000U, 0x1001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>((upper << 16U) | lower));
    }
  }
  return values;
}

/// Here NaN payloads are compared as well: conversions do define them.
template <class B>
void require_equal_conversion(const std::vector<float>& values, isa path) {
  std::vector<B> output(values.size());
  zero::kernels::convert(zero::host_space{}, values.data(), output.data(), values.size(), path);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (output[i].bits() != B{values[i]}.bits()) {
      FAIL(zero::kernels::cpu::isa_name(path)
           << ", pattern " << std::bit_cast<std::uint32_t>(values[i]));
    }
  }
}

TEST_CASE("cast: vector conversions round like the element types, NaN payloads included") {
  const auto values = boundary_floats();
  for (const isa path : vector_paths()) {
    require_equal_conversion<bfloat16>(values, path);
    require_equal_conversion<float16>(values, path);
  }
}

TEMPLATE_TEST_CASE("cast: vector loads give every 16-bit pattern's value", "", bfloat16, float16) {
  std::vector<TestType> patterns(0x10000);
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    patterns[bits] = TestType::from_bits(static_cast<std::uint16_t>(bits));
  }
  for (const isa path : vector_paths()) {
    std::vector<float> output(patterns.size());
    zero::kernels::convert(zero::host_space{}, patterns.data(), output.data(), 0x10000, path);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const float expected = static_cast<float>(patterns[i]);
      if (std::memcmp(&output[i], &expected, sizeof(float)) != 0)
        FAIL("pattern " << i);
    }
  }
}

using accumulations =
    std::tuple<std::pair<float, float>, std::pair<bfloat16, float>, std::pair<float16, float>,
               std::pair<bfloat16, bfloat16>, std::pair<float, double>>;

TEMPLATE_LIST_TEST_CASE("cast: accumulate adds, for every count", "", accumulations) {
  using G = typename TestType::first_type;
  using A = typename TestType::second_type;
  for (std::size_t count = 0; count <= 60; ++count) {
    const auto input = mixed_values<G>(count);
    const auto start = mixed_values<A>(count + 1);
    for (const isa path : all_paths()) {
      auto sums = start;
      zero::kernels::accumulate(zero::host_space{}, input.data(), sums.data(), count, path);
      for (std::size_t i = 0; i < count; ++i) {
        A expected{};
        if constexpr (std::is_same_v<A, double>) {
          expected = start[i] + static_cast<double>(input[i]);
        } else {
          expected = static_cast<A>(static_cast<float>(start[i]) + static_cast<float>(input[i]));
        }
        if (!same(sums[i], expected))
          FAIL("count " << count << ", element " << i);
      }
      if (!same(sums[count], start[count]))
        FAIL("wrote behind the end");
    }
  }
}

TEST_CASE("fault_28 512 micro-gradients of 1 add up to 512 in fp32") {
  const std::vector<bfloat16> gradient(20, bfloat16{1.0F});
  std::vector<float> sums(20, 0.0F);
  std::vector<bfloat16> narrow(20, bfloat16{0.0F});
  for (int micro = 0; micro < 512; ++micro) {
    zero::kernels::accumulate(zero::host_space{}, gradient.data(), sums.data(), 20);
    zero::kernels::accumulate(zero::host_space{}, gradient.data(), narrow.data(), 20);
  }
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(sums[i] == 512.0F);
    CHECK(static_cast<float>(narrow[i]) == 256.0F);  // why accumulation_type is float
  }
}

TEST_CASE("cast: fill_zero writes positive zeros and nothing else") {
  std::vector<bfloat16> values(10, bfloat16{3.0F});
  zero::kernels::fill_zero(zero::host_space{}, values.data(), 9);
  for (std::size_t i = 0; i < 9; ++i)
    CHECK(values[i].bits() == 0);
  CHECK(values[9] == bfloat16{3.0F});
  zero::kernels::fill_zero(zero::host_space{}, static_cast<float*>(nullptr), 0);
}

}  // namespace
