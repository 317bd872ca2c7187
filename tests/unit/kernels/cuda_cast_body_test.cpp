// SPDX-License-Identifier: Apache-2.0
// labels: kernel_host
#include <zero/kernels/cuda/cast_body.hpp>

#include <cstddef>
#include <cstdint>

#include <catch2/catch.hpp>
#include <zero/kernels/cast.hpp>

#include "cuda_cases.hpp"
#include "support/cuda_bodies.hpp"

namespace {

using namespace kernel_tests;
namespace cuda = zero::kernels::cuda;

template <class A, class B>
void require_host_bits(std::uint64_t count, std::size_t input_offset, std::size_t output_offset) {
  const std::uint64_t threads = cuda_bodies::threads_of(count);
  const buffer<A> input = filled<A>(count, input_offset, count);
  buffer<B> expected = filled<B>(count, output_offset, count + 1);
  buffer<B> actual = expected;
  zero::kernels::accumulate(zero::host_space{}, input.data(), expected.data(), count);
  const cuda::accumulate_body<A, B> accumulate{input.data(), actual.data(), count};
  cuda_bodies::run_all_threads(accumulate, threads);
  if (actual.difference(expected) != buffer<B>::npos) {
    FAIL("accumulate " << zero::element_traits<A>::name << " to " << zero::element_traits<B>::name
                       << ", " << count << " elements, element " << actual.difference(expected));
  }
  zero::kernels::convert(zero::host_space{}, input.data(), expected.data(), count);
  const cuda::convert_body<A, B> convert{input.data(), actual.data(), count};
  cuda_bodies::run_all_threads(convert, threads);
  if (actual.difference(expected) != buffer<B>::npos) {
    FAIL("convert " << zero::element_traits<A>::name << " to " << zero::element_traits<B>::name
                    << ", " << count << " elements, element " << actual.difference(expected));
  }
}

template <class A, class B>
void require_host_bits() {
  for (const std::uint64_t count : cuda_bodies::sizes()) {
    require_host_bits<A, B>(count, 0, 0);
    require_host_bits<A, B>(count, count % 3, (count + 1) % 2);
  }
}

template <class A>
void require_host_bits_to_all_types() {
  require_host_bits<A, float>();
  require_host_bits<A, double>();
  require_host_bits<A, zero::bfloat16>();
  require_host_bits<A, zero::float16>();
}

TEST_CASE("cuda cast bodies: converting and accumulating give the host's bits") {
  SECTION("float") {
    require_host_bits_to_all_types<float>();
  }
  SECTION("double") {
    require_host_bits_to_all_types<double>();
  }
  SECTION("bfloat16") {
    require_host_bits_to_all_types<zero::bfloat16>();
  }
  SECTION("float16") {
    require_host_bits_to_all_types<zero::float16>();
  }
}

}  // namespace
