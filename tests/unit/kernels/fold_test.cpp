// SPDX-License-Identifier: Apache-2.0
#include <zero/kernels/fold.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include "emulated_ops.hpp"
#include "kernel_cases.hpp"

namespace {

using namespace kernel_tests;

template <class T>
using compute_of = typename zero::element_traits<T>::compute_type;

/// The tree by its definition: the left part takes the largest power of two below the count.
template <class T>
compute_of<T> reference_sum(const std::vector<std::vector<T>>& inputs, std::size_t first,
                            std::size_t count, std::size_t i) {
  if (count == 1)
    return static_cast<compute_of<T>>(inputs[first][i]);
  std::size_t left = 1;
  while (2 * left < count)
    left = 2 * left;
  return reference_sum(inputs, first, left, i) +
         reference_sum(inputs, first + left, count - left, i);
}

template <class T>
std::vector<std::vector<T>> random_inputs(std::size_t ranks, std::size_t count,
                                          std::uint64_t seed) {
  sequence values(seed);
  std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
  for (auto& input : inputs) {
    for (T& value : input) {
      value = static_cast<T>(std::ldexp(values.unit(), static_cast<int>(values.bits() % 12)));
    }
  }
  return inputs;
}

template <class T>
std::vector<const T*> pointers(const std::vector<std::vector<T>>& inputs) {
  std::vector<const T*> result;
  for (const auto& input : inputs)
    result.push_back(input.data());
  return result;
}

std::vector<isa> all_paths() {
  auto paths = vector_paths();
  paths.push_back(isa::scalar);
  return paths;
}

template <class T, class U>
void require_reference(std::size_t ranks, std::size_t count, float scale) {
  const auto inputs = random_inputs<T>(ranks, count, ranks * 1000 + count);
  const auto sources = pointers(inputs);
  for (const isa path : all_paths()) {
    std::vector<U> output(count + 1, static_cast<U>(77.0F));
    zero::kernels::fold(zero::host_space{}, std::span<const T* const>(sources), output.data(),
                        count, scale, path);
    for (std::size_t i = 0; i < count; ++i) {
      const auto expected =
          static_cast<U>(reference_sum(inputs, 0, ranks, i) * static_cast<compute_of<T>>(scale));
      if (!same(output[i], expected)) {
        FAIL(zero::kernels::cpu::isa_name(path)
             << ": N = " << ranks << ", count " << count << ", element " << i);
      }
    }
    if (!same(output[count], static_cast<U>(77.0F)))
      FAIL("wrote behind the end");
  }
}

TEMPLATE_TEST_CASE("fold: the rank_tree sum, rounded once", "", float, double, zero::bfloat16,
                   zero::float16) {
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    for (const std::size_t count : {0U, 1U, 2U, 7U, 8U, 9U, 15U, 16U, 17U, 31U, 100U, 300U}) {
      for (const float scale : {1.0F, 0.5F, 1.0F / static_cast<float>(ranks)}) {
        require_reference<TestType, TestType>(ranks, count, scale);
        require_reference<TestType, compute_of<TestType>>(ranks, count, scale);
      }
    }
  }
}

TEMPLATE_TEST_CASE("fold: many ranks, several blocks", "", float, double, zero::bfloat16) {
  for (const std::size_t ranks : {10U, 15U, 16U, 17U, 23U, 24U, 31U, 32U, 33U, 63U, 65U, 100U}) {
    for (const std::size_t count : {3U, 63U, 64U, 65U, 130U, 530U}) {
      require_reference<TestType, TestType>(ranks, count, 0.25F);
    }
  }
}

TEST_CASE("fold: sixteen emulated lanes give the same bits") {
  for (const std::size_t ranks : {1U, 2U, 3U, 5U, 8U, 9U, 21U}) {
    for (const std::size_t count : {0U, 5U, 16U, 33U, 300U}) {
      const auto inputs = random_inputs<zero::bfloat16>(ranks, count, ranks);
      const auto sources = pointers(inputs);
      std::vector<float> output(count);
      const zero::kernels::cpu::fold_kernel<zero::bfloat16, float> kernel{
          std::span<const zero::bfloat16* const>(sources), output.data(), count, 0.5F};
      kernel.run<emulated_ops<16>>();
      for (std::size_t i = 0; i < count; ++i) {
        if (output[i] != reference_sum(inputs, 0, ranks, i) * 0.5F) {
          FAIL("N = " << ranks << ", count " << count << ", element " << i);
        }
      }
    }
  }
}

TEST_CASE("fold: integers sum exactly for every N") {
  for (std::size_t ranks = 1; ranks <= 40; ++ranks) {
    std::vector<std::vector<float>> inputs(ranks, std::vector<float>(19));
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < 19; ++i)
        inputs[r][i] = static_cast<float>((r + 1) * (i + 1));
    }
    const auto sources = pointers(inputs);
    std::vector<float> output(19);
    zero::kernels::fold(zero::host_space{}, std::span<const float* const>(sources), output.data(),
                        19, 1.0F);
    for (std::size_t i = 0; i < 19; ++i) {
      CHECK(output[i] == static_cast<float>(ranks * (ranks + 1) / 2 * (i + 1)));
    }
  }
}

TEST_CASE("fold: the order is ((0+1)+(2+3))+4") {
  // 2^24 + 1 is lost in fp32, so each order gives another sum.
  const float big = 0x1p24F;
  const std::vector<std::vector<float>> inputs = {{big}, {1.0F}, {1.0F}, {1.0F}, {-big}};
  const auto sources = pointers(inputs);
  float sum = 0.0F;
  zero::kernels::fold(zero::host_space{}, std::span<const float* const>(sources), &sum, 1, 1.0F);
  CHECK(sum == 2.0F);  // left to right it is 0, in pairs from the right 3 is possible
}

TEST_CASE("fold: the output may be one of the inputs") {
  for (std::size_t ranks = 1; ranks <= 12; ++ranks) {
    for (std::size_t own = 0; own < ranks; ++own) {
      auto inputs = random_inputs<float>(ranks, 531, ranks);
      const auto original = inputs;
      const auto sources = pointers(inputs);
      zero::kernels::fold(zero::host_space{}, std::span<const float* const>(sources),
                          inputs[own].data(), 531, 1.0F);
      for (std::size_t i = 0; i < 531; ++i) {
        if (inputs[own][i] != reference_sum(original, 0, ranks, i)) {
          FAIL("N = " << ranks << ", output is input " << own << ", element " << i);
        }
      }
    }
  }
}

TEST_CASE("fold: a mean of fp16 values may exist where their sum does not") {
  const std::vector<std::vector<zero::float16>> inputs(4, {zero::float16{40000.0F}});
  const auto sources = pointers(inputs);
  zero::float16 mean{};
  zero::kernels::fold(zero::host_space{}, std::span<const zero::float16* const>(sources), &mean, 1,
                      0.25F);
  CHECK(static_cast<float>(mean) == 40000.0F);
  zero::kernels::fold(zero::host_space{}, std::span<const zero::float16* const>(sources), &mean, 1,
                      1.0F);
  CHECK(std::isinf(static_cast<float>(mean)));
}

TEST_CASE("fold: no input is an error") {
  float output = 0.0F;
  CHECK_THROWS_AS(
      zero::kernels::fold(zero::host_space{}, std::span<const float* const>{}, &output, 1, 1.0F),
      zero::usage_error);
}

}  // namespace
