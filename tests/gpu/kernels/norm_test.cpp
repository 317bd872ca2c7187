// SPDX-License-Identifier: Apache-2.0
// timeout: 300
// links: zero_gpu_listener zero_gpu_kernels
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/kernels/chunked_norm.hpp>

#include "gpu/device_array.hpp"
#include "gpu/selection.hpp"

namespace {

using namespace gpu_tests;
using kernel_tests::uneven_values;

/// `start` plus the sum of squares of the values from `first` on, as the device adds them.
template <class G>
double sum_on_device(const std::vector<G>& values, std::size_t first,
                     const zero::unique_cuda_stream& stream, double start = 0) {
  const std::uint64_t count = values.size() - first;
  const device_array<G> there(std::span<const G>(values), stream);
  const device_array<double> scratch(zero::kernels::norm_scratch_elements(count), stream);
  const device_array<double> total({&start, 1}, stream);
  zero::kernels::sum_of_squares(zero::cuda_space{}, static_cast<const G*>(there.data() + first),
                                count, scratch.data(), total.data(), stream.get());
  return total.read_one();
}

template <class G>
void require_host_bits(std::uint64_t count, std::size_t offset,
                       const zero::unique_cuda_stream& stream) {
  const std::vector<G> values = uneven_values<G>(count + offset, count + 7);
  const double expected =
      zero::kernels::chunked_sum_of_squares(zero::host_space{}, values.data() + offset, count);
  const double actual = sum_on_device(values, offset, stream);
  if (std::memcmp(&actual, &expected, sizeof(double)) != 0) {
    FAIL(zero::element_traits<G>::name << ", " << count << " elements from " << offset << ": "
                                       << actual << ", on the host " << expected);
  }
}

template <class G>
void require_host_bits(const zero::unique_cuda_stream& stream) {
  for (const std::uint64_t count : sizes()) {
    require_host_bits<G>(count, 0, stream);
    require_host_bits<G>(count, 1 + count % 2, stream);
  }
  // Two and three levels: 1,024 chunks and one more.
  for (const std::uint64_t count : {1048575U, 1048576U, 1048577U, 1050003U}) {
    require_host_bits<G>(count, 0, stream);
  }
}

}  // namespace

TEST_CASE("gpu norm: the sum of squares has the bits of the host's chunks") {
  const zero::unique_cuda_stream stream;
  for_each_precision([&]<class P>() {
    require_host_bits<typename P::gradient_type>(stream);
    require_host_bits<typename P::accumulation_type>(stream);
  });
}

TEST_CASE("gpu norm: sums are added to what is there") {
  const zero::unique_cuda_stream stream;
  CHECK(sum_on_device<float>({3.0F}, 0, stream, 0.5) == 9.5);
  CHECK(sum_on_device<float>({}, 0, stream, 0.5) == 0.5);
}

TEST_CASE("gpu norm: one bad value anywhere makes the sum bad") {
  const zero::unique_cuda_stream stream;
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t count : {1U, 17U, 1024U, 5003U}) {
      for (const std::size_t position : {std::size_t{0}, count / 2, count - 1}) {
        std::vector<float> values(count, std::numeric_limits<float>::max());
        CHECK(std::isfinite(sum_on_device(values, 0, stream)));
        values[position] = bad;
        CHECK_FALSE(std::isfinite(sum_on_device(values, 0, stream)));
      }
    }
  }
}
