// SPDX-License-Identifier: Apache-2.0
// links: zero_thrust OpenMP::OpenMP_CXX
// timeout: 120
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_OMP
#include <zero/adapters/thrust.hpp>

#include <omp.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>

#include <catch2/catch.hpp>

#include "unit/adapters/thrust_cases.hpp"

namespace {

/// More threads than cores here, so that they interleave.
constexpr int thread_count = 3;

TEST_CASE("thrust_update: the OMP system gives the kernels' bits") {
  omp_set_num_threads(thread_count);
  CHECK(thrust_tests::first_difference(thrust::omp::par) == "");
}

TEST_CASE("thrust_update: thrust::device is the OMP system where that was chosen") {
  omp_set_num_threads(thread_count);
  const auto step = [](const auto& operands, const auto& scalars, float gradient_scale) {
    zero::thrust_update(thrust::device, operands, scalars, gradient_scale);
  };
  CHECK(thrust_tests::difference_from_kernels<zero::adamw, zero::bf16_mixed, zero::bfloat16>(
            1000, 1, step) == "");
}

TEST_CASE("thrust_omp: the tests of this file run in several threads") {
  omp_set_num_threads(thread_count);
  std::atomic<std::uint32_t> seen{0};
  thrust::for_each_n(thrust::omp::par, thrust::make_counting_iterator(0), 1000,
                     [&](int) { seen |= 1U << static_cast<unsigned>(omp_get_thread_num()); });
  CHECK(seen == (1U << thread_count) - 1);
}

TEST_CASE("thrust_omp: a device_vector lies on the host") {
  thrust::device_vector<float> vector(3, 1.5F);
  const auto range = zero::as_range<zero::shard>(vector);
  static_assert(
      std::is_same_v<decltype(range), const zero::range<float, zero::shard, zero::host_space>>);
  CHECK(range.data() == thrust::raw_pointer_cast(vector.data()));
  CHECK(range[2] == 1.5F);
}

}  // namespace
