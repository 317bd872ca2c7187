// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zero/optimizer.hpp>
#include <zero/precision.hpp>

#include "unit/kernels/kernel_cases.hpp"

// What zero_gpu_kernels has device code for (cmake/ZeroGpuChecks.cmake).

namespace gpu_tests {

/// Calls function.operator()<P>().
template <class Function>
void for_each_precision(Function function) {
  function.template operator()<zero::bf16_mixed>();
#if defined(ZERO_TEST_GPU_ALL)
  function.template operator()<zero::fp32>();
  function.template operator()<zero::fp16_mixed>();
  function.template operator()<zero::bf16_mixed_fp32_gradients>();
  function.template operator()<zero::bf16_remainder>();
#endif
}

/// Calls function.operator()<O, P>().
template <class Function>
void for_each_policy(Function function) {
  for_each_precision([&]<class P>() {
    function.template operator()<zero::adamw, P>();
#if defined(ZERO_TEST_GPU_ALL)
    function.template operator()<zero::adam, P>();
    function.template operator()<zero::sgd, P>();
    function.template operator()<zero::lion, P>();
#endif
  });
}

/// Calls function.operator()<O, P, G>(), G being the gradients' or the sums' type.
template <class Function>
void for_each_combination(Function function) {
  for_each_policy(
      [&]<class O, class P>() { kernel_tests::for_each_gradient_type<O, P>(function); });
}

}  // namespace gpu_tests
