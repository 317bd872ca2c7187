// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <zero/adapters/thrust/update.hpp>
#include <zero/kernels/cpu/instruction_set.hpp>

#include "unit/kernels/kernel_cases.hpp"

namespace thrust_tests {

/// Around the lanes of every instruction set, the packs of a GPU and a block's threads.
inline constexpr std::uint64_t sizes[] = {0, 1, 2, 15, 16, 17, 255, 256, 257, 1000, 4096};
inline constexpr std::size_t offsets[] = {0, 1, 3, 7};

/// Empty where two steps on Thrust give the bits of the kernels, guards around the arrays included.
///
/// `step(operands, scalars, gradient_scale)` is the step on Thrust.
template <class O, class P, class G, class Step>
std::string difference_from_kernels(std::uint64_t count, std::size_t offset, Step step) {
  kernel_tests::model_states<O, P, G> expected(count, offset, count + offset, true);
  auto actual = expected;
  for (std::uint64_t number = 1; number <= 2; ++number) {
    expected.step(number, zero::kernels::cpu::instruction_set());
    const auto scalars = O{}.prepare(number, {.lr = 0.01, .weight_decay = 0.1});
    step(actual.operands(0, count), scalars, 0.75F);  // what step() of the states uses
  }
  const std::string difference = actual.difference(expected);
  if (difference.empty()) return {};
  return std::string(O::name) + ' ' + std::string(P::name) + ", " + std::to_string(count) +
         " elements at " + std::to_string(offset) + ": " + difference;
}

/// The first combination of optimizer, precision, size and offset that differs, or nothing.
template <class Policy>
std::string first_difference(const Policy& policy) {
  std::string first;
  kernel_tests::for_each_combination([&]<class O, class P, class G>() {
    for (const std::uint64_t count : sizes) {
      for (const std::size_t offset : offsets) {
        if (!first.empty()) return;
        first = difference_from_kernels<O, P, G>(
            count, offset, [&](const auto& operands, const auto& scalars, float gradient_scale) {
              zero::thrust_update<O, P>(policy, operands, scalars, gradient_scale);
            });
      }
    }
  });
  return first;
}

}  // namespace thrust_tests
