// SPDX-License-Identifier: Apache-2.0
#include <zero/kernels/norm.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "emulated_ops.hpp"
#include "kernel_cases.hpp"

namespace {

using namespace kernel_tests;

/// Sixteen interleaved sums, then halves onto halves: the documented order.
template <class G>
double reference(const std::vector<G>& values) {
  double partial[16] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(static_cast<float>(values[i]));
    partial[i % 16] += value * value;
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j)
      partial[j] += partial[j + half];
  }
  return partial[0];
}

/// Magnitudes so far apart that every order of summation rounds differently.
template <class G>
std::vector<G> random_values(std::size_t count) {
  sequence values(count);
  std::vector<G> result(count);
  for (G& value : result) {
    value = static_cast<G>(std::ldexp(values.unit(), 8 - static_cast<int>(values.bits() % 32)));
  }
  return result;
}

std::vector<isa> all_paths() {
  auto paths = vector_paths();
  paths.push_back(isa::scalar);
  return paths;
}

TEMPLATE_TEST_CASE("norm: the same bits on every path and for every count", "", float,
                   zero::bfloat16, zero::float16) {
  for (std::size_t count = 0; count <= 130; ++count) {
    const auto values = random_values<TestType>(count + 1);
    for (const isa path : all_paths()) {
      // One element in: no alignment is assumed.
      const std::vector<TestType> used(values.begin() + 1, values.end());
      const double sum =
          zero::kernels::sum_of_squares(zero::host_space{}, values.data() + 1, count, path);
      if (sum != reference(used)) {
        FAIL(zero::kernels::cpu::isa_name(path) << ", count " << count);
      }
    }
    std::array<double, 16> emulated{};
    std::array<double, 16> scalar{};
    using kernel = zero::kernels::cpu::norm_kernel<TestType>;
    kernel{values.data(), count, emulated}.template run<emulated_ops<16>>();
    kernel{values.data(), count, scalar}.template run<zero::scalar_ops<float>>();
    if (emulated != scalar)
      FAIL("sixteen emulated lanes, count " << count);
  }
}

TEST_CASE("norm: close to the exact sum") {
  const auto values = random_values<float>(100'003);
  long double exact = 0.0L;
  for (const float value : values)
    exact += static_cast<long double>(value) * value;
  const double sum = zero::kernels::sum_of_squares(zero::host_space{}, values.data(), 100'003);
  CHECK(sum == Approx(static_cast<double>(exact)).epsilon(1e-14));
}

TEST_CASE("norm: doubles are summed too") {
  const std::vector<double> values(20, 1.5);
  CHECK(zero::kernels::sum_of_squares(zero::host_space{}, values.data(), 20) == 45.0);
}

TEMPLATE_TEST_CASE("norm: one non-finite value anywhere makes the sum non-finite", "", float,
                   zero::bfloat16, zero::float16) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (std::size_t count = 1; count <= 40; ++count) {
      for (std::size_t at = 0; at < count; ++at) {
        auto values = random_values<TestType>(count);
        values[at] = static_cast<TestType>(bad);
        for (const isa path : all_paths()) {
          const double sum =
              zero::kernels::sum_of_squares(zero::host_space{}, values.data(), count, path);
          if (std::isfinite(sum))
            FAIL("count " << count << ", element " << at);
        }
      }
    }
  }
}

TEST_CASE("norm: the largest finite values stay finite") {
  const std::vector<float> values(1000, std::numeric_limits<float>::max());
  const double sum = zero::kernels::sum_of_squares(zero::host_space{}, values.data(), 1000);
  CHECK(std::isfinite(sum));
  const std::vector<float> tiny(16, std::numeric_limits<float>::denorm_min());
  CHECK(zero::kernels::sum_of_squares(zero::host_space{}, tiny.data(), 16) == 0x1p-294);
}

TEST_CASE("fault_13 squares of fp16 gradients do not overflow") {
  const std::vector<zero::float16> values(4, zero::float16{300.0F});
  for (const isa path : all_paths()) {
    const double sum = zero::kernels::sum_of_squares(zero::host_space{}, values.data(), 4, path);
    CHECK(std::sqrt(sum) == 600.0);
  }
}

TEST_CASE("fault_13 squares of large fp32 gradients do not overflow") {
  const std::vector<float> values(128, 1e19F);
  for (const isa path : all_paths()) {
    const double sum = zero::kernels::sum_of_squares(zero::host_space{}, values.data(), 128, path);
    CHECK(std::sqrt(sum) == Approx(1.1313708e20).epsilon(1e-7));
  }
}

}  // namespace
