// SPDX-License-Identifier: Apache-2.0
// links: zero_thrust
// timeout: 120
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <zero/adapters/thrust.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <thrust/execution_policy.h>

#include <catch2/catch.hpp>

#include "passes.hpp"
#include "unit/adapters/thrust_cases.hpp"

namespace {

using namespace thrust_tests;

TEST_CASE("thrust_update: the CPP system gives the kernels' bits") {
  CHECK(first_difference(thrust::cpp::par) == "");
}

TEST_CASE("thrust_update: thrust::host, thrust::seq and thrust::device are policies, too") {
  const auto difference = [](const auto& policy) {
    return difference_from_kernels<zero::lion, zero::bf16_remainder, float>(
        257, 3, [&](const auto& operands, const auto& scalars, float gradient_scale) {
          zero::thrust_update(policy, operands, scalars, gradient_scale);
        });
  };
  CHECK(difference(thrust::host) == "");
  CHECK(difference(thrust::device) == "");
  CHECK(difference(thrust::seq) == "");
}

TEST_CASE("thrust_update: passes over whole arrays give the kernels' bits") {
  std::string first;
  kernel_tests::for_each_combination([&]<class O, class P, class G>() {
    for (const std::uint64_t count : sizes) {
      if (!first.empty()) return;
      first = difference_from_kernels<O, P, G>(
          count, 0, [](const auto& operands, const auto& scalars, float gradient_scale) {
            passes::update(operands, scalars, gradient_scale);
          });
    }
  });
  CHECK(first == "");
}

/// Moments and scalars in std::array, as the concept asks for and devices cannot have.
struct host_optimizer {
  static constexpr std::string_view name = "host_optimizer";
  static constexpr std::size_t moments_per_element = 1;
  static constexpr std::size_t scalar_count = 1;
  double weight_decay = 0;

  std::array<double, 1> prepare(std::uint64_t, const zero::update_arguments& arguments) const {
    return {-arguments.lr};
  }
  template <class Ops, class V>
  static void update(V& parameter, std::array<V, 1>& moments, const V& gradient,
                     const std::array<V, 1>& scalars) {
    moments[0] = Ops::add(moments[0], gradient);
    parameter = Ops::fma(scalars[0], moments[0], parameter);
  }
};
static_assert(zero::Optimizer<host_optimizer>);

TEST_CASE("thrust_update: an optimizer of the user's own, for the host only") {
  const auto step = [](const auto& operands, const auto& scalars, float gradient_scale) {
    zero::thrust_update(thrust::cpp::par, operands, scalars, gradient_scale);
  };
  CHECK(difference_from_kernels<host_optimizer, zero::fp16_mixed, zero::float16>(1000, 1, step) ==
        "");
}

/// Gradient descent: nothing is remembered.
struct descent {
  static constexpr std::string_view name = "descent";
  static constexpr std::size_t moments_per_element = 0;
  static constexpr std::size_t scalar_count = 1;
  double weight_decay = 0;

  std::array<double, 1> prepare(std::uint64_t, const zero::update_arguments& arguments) const {
    return {-arguments.lr};
  }
  template <class Ops, class V, class Moments, class Scalars>
  static void update(V& parameter, Moments&, const V& gradient, const Scalars& scalars) {
    parameter = Ops::fma(scalars[0], gradient, parameter);
  }
};

TEST_CASE("thrust_update: an optimizer without moments") {
  const auto step = [](const auto& operands, const auto& scalars, float gradient_scale) {
    zero::thrust_update(thrust::cpp::par, operands, scalars, gradient_scale);
  };
  CHECK(difference_from_kernels<descent, zero::bf16_mixed, zero::bfloat16>(257, 1, step) == "");
}

}  // namespace
