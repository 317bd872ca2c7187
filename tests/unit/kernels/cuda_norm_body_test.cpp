// SPDX-License-Identifier: Apache-2.0
// labels: kernel_host
#include <zero/kernels/cuda/norm_body.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "cuda_cases.hpp"
#include "support/cuda_bodies.hpp"

namespace {

using kernel_tests::uneven_values;
namespace cuda = zero::kernels::cuda;
using zero::kernels::chunked_sum_of_squares;
using zero::kernels::norm_scratch_elements;

/// What the device does level by level, with every launch as all threads in turn.
template <class G>
double device_sum(const G* values, std::uint64_t count, std::uint64_t threads) {
  double total = 0;
  std::vector<double> scratch(norm_scratch_elements(count), -1.0);
  if (count == 0) return total;
  const cuda::chunk_sums_body<G, true> squares(values, count, scratch.data(), &total);
  cuda_bodies::run_all_threads(squares, threads);
  double* level = scratch.data();
  for (std::uint64_t left = squares.chunks(); left > 1;) {
    const cuda::chunk_sums_body<double, false> sums(level, left, level + left, &total);
    cuda_bodies::run_all_threads(sums, threads);
    level += left;
    left = sums.chunks();
  }
  CHECK(level == scratch.data() + scratch.size());
  return total;
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof(double)) == 0;
}

template <class G>
void require_host_bits(std::uint64_t count, std::size_t offset) {
  const std::vector<G> values = uneven_values<G>(count + offset, count + 7);
  const G* const first = values.data() + offset;
  const double expected = chunked_sum_of_squares(zero::host_space{}, first, count);
  const double actual = device_sum(first, count, cuda_bodies::threads_of(count));
  if (!same_bits(actual, expected)) {
    FAIL(zero::element_traits<G>::name << ", " << count << " elements from " << offset << ": "
                                       << actual << ", on the host " << expected);
  }
}

template <class G>
void require_host_bits_at_all_sizes() {
  for (const std::uint64_t count : cuda_bodies::sizes()) {
    require_host_bits<G>(count, count % 2);
    require_host_bits<G>(count, 0);
  }
  // Three levels: more than 1,024 chunks.
  for (const std::uint64_t count : {1023U, 1024U, 1025U, 1048575U, 1048576U, 1048577U, 1050003U}) {
    require_host_bits<G>(count, 0);
  }
}

TEST_CASE("cuda norm body: the sum of squares has the bits of the host's chunks") {
  SECTION("float") {
    require_host_bits_at_all_sizes<float>();
  }
  SECTION("bfloat16") {
    require_host_bits_at_all_sizes<zero::bfloat16>();
  }
  SECTION("float16") {
    require_host_bits_at_all_sizes<zero::float16>();
  }
  SECTION("double") {
    require_host_bits_at_all_sizes<double>();
  }
}

TEST_CASE("cuda norm body: one chunk has the bits of sum_of_squares") {
  for (std::uint64_t count = 0; count <= 1024; ++count) {
    const std::vector<float> values = uneven_values<float>(count, count);
    const double plain = zero::kernels::sum_of_squares(zero::host_space{}, values.data(), count);
    const double chunked = chunked_sum_of_squares(zero::host_space{}, values.data(), count);
    if (!same_bits(plain, chunked)) FAIL(count << " elements");
    if (!same_bits(plain, device_sum(values.data(), count, 3))) FAIL(count << " on the device");
  }
}

TEST_CASE("cuda norm body: the number of threads does not matter") {
  const std::vector<zero::bfloat16> values = uneven_values<zero::bfloat16>(70000, 5);
  const double expected = device_sum(values.data(), values.size(), 1);
  for (const std::uint64_t threads : cuda_bodies::thread_counts) {
    CHECK(same_bits(device_sum(values.data(), values.size(), threads), expected));
  }
}

TEST_CASE("cuda norm body: sums are added to what is there") {
  const float value = 3.0F;
  double total = 0.5;
  const cuda::chunk_sums_body<float, true> body(&value, 1, nullptr, &total);
  cuda_bodies::run_all_threads(body, 3);
  CHECK(total == 9.5);
}

TEST_CASE("cuda norm body: one bad value anywhere makes the sum bad") {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t count : {1U, 17U, 1024U, 5003U}) {
      for (const std::size_t position : {std::size_t{0}, count / 2, count - 1}) {
        std::vector<float> values(count, std::numeric_limits<float>::max());
        CHECK(std::isfinite(device_sum(values.data(), count, 33)));
        values[position] = bad;
        CHECK_FALSE(std::isfinite(device_sum(values.data(), count, 33)));
      }
    }
  }
}

TEST_CASE("cuda norm body: scratch memory is an element per 1,024, on each level") {
  CHECK(norm_scratch_elements(0) == 0);
  CHECK(norm_scratch_elements(1024) == 0);
  CHECK(norm_scratch_elements(1025) == 2);
  CHECK(norm_scratch_elements(1048576) == 1024);
  CHECK(norm_scratch_elements(1048577) == 1025 + 2);
  static_assert(norm_scratch_elements(std::uint64_t{1} << 40U) == (1U << 30U) + (1U << 20U) + 1024);
}

}  // namespace
