// SPDX-License-Identifier: Apache-2.0
// labels: kernel_host
#include <zero/kernels/cuda/fold_body.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include "cuda_cases.hpp"
#include "support/cuda_bodies.hpp"

namespace {

using namespace kernel_tests;
namespace cuda = zero::kernels::cuda;

template <class T, class U>
void require_host_bits(std::size_t ranks, std::uint64_t count, std::size_t misaligned,
                       std::size_t output_offset) {
  const fold_inputs<T> inputs(ranks, count, misaligned);
  const std::span<const T* const> sources(inputs.pointers);
  buffer<U> expected(count, output_offset);
  auto actual = expected;
  zero::kernels::fold(zero::host_space{}, sources, expected.data(), count, 0.37F);
  const cuda::fold_body<T, U> body(sources, actual.data(), count, 0.37F);
  cuda_bodies::run_all_threads(body, cuda_bodies::threads_of(count + ranks));
  if (actual.difference(expected) != buffer<U>::npos) {
    FAIL(zero::element_traits<T>::name << " to " << zero::element_traits<U>::name << ", " << ranks
                                       << " ranks, " << count << " elements: element "
                                       << actual.difference(expected));
  }
}

template <class T, class U>
void require_host_bits() {
  for (std::size_t ranks = 1; ranks <= zero::kernels::max_device_fold_inputs; ++ranks) {
    require_host_bits<T, U>(ranks, 67, ranks, 0);      // all are aligned
    require_host_bits<T, U>(ranks, 19, ranks / 2, 0);  // one input is not
    require_host_bits<T, U>(ranks, 19, ranks, 1);      // the output is not
  }
  for (const std::uint64_t count : cuda_bodies::sizes()) {
    require_host_bits<T, U>(1 + count % 8, count, 99, 0);
  }
}

TEST_CASE("cuda fold body: the sum over 1 to 64 ranks has the host's bits") {
  SECTION("float") {
    require_host_bits<float, float>();
  }
  SECTION("double") {
    require_host_bits<double, double>();
  }
  SECTION("bfloat16") {
    require_host_bits<zero::bfloat16, zero::bfloat16>();
  }
  SECTION("bfloat16, not rounded") {
    require_host_bits<zero::bfloat16, float>();
  }
  SECTION("float16") {
    require_host_bits<zero::float16, zero::float16>();
  }
  SECTION("float16, not rounded") {
    require_host_bits<zero::float16, float>();
  }
}

TEST_CASE("cuda fold body: the output may be one of the inputs") {
  for (std::size_t output = 0; output < 5; ++output) {
    fold_inputs<float> inputs(5, 1003, 99);
    const std::span<const float* const> sources(inputs.pointers);
    buffer<float> expected(1003, 0);
    zero::kernels::fold(zero::host_space{}, sources, expected.data(), 1003, 1.0F);
    const cuda::fold_body<float, float> body(sources, inputs.arrays[output].data(), 1003, 1.0F);
    cuda_bodies::run_all_threads(body, 33);
    CHECK(inputs.arrays[output].difference(expected) == buffer<float>::npos);
  }
}

TEST_CASE("cuda fold body: no input and too many inputs are refused with their number") {
  using body = cuda::fold_body<float, float>;
  float value = 0;
  CHECK_THROWS_WITH(body(std::span<const float* const>(), &value, 1, 1.0F),
                    "kernels::fold: no input");
  const std::vector<const float*> many(65, &value);
  CHECK_THROWS_WITH(body(std::span<const float* const>(many), &value, 1, 1.0F),
                    "kernels::fold: 65 inputs, a device folds at most 64");
}

}  // namespace
