// SPDX-License-Identifier: Apache-2.0
// timeout: 300
// links: zero_gpu_listener zero_gpu_kernels
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/kernels/fold.hpp>

#include "gpu/device_array.hpp"
#include "gpu/selection.hpp"

namespace {

using namespace gpu_tests;
using kernel_tests::buffer;
using kernel_tests::fold_inputs;

/// The inputs of a fold in device memory.
template <class T>
class device_inputs {
 public:
  device_inputs(fold_inputs<T>& host, const zero::unique_cuda_stream& stream) {
    for (auto& array : host.arrays) arrays_.emplace_back(array, stream);
    for (const auto& array : arrays_) pointers_.push_back(array.data());
  }

  std::span<const T* const> pointers() const { return pointers_; }
  const device_copy<T>& operator[](std::size_t i) const { return arrays_[i]; }

 private:
  std::vector<device_copy<T>> arrays_;
  std::vector<const T*> pointers_;
};

template <class T, class U>
void require_host_bits(std::size_t ranks, std::uint64_t count, std::size_t misaligned,
                       std::size_t output_offset, const zero::unique_cuda_stream& stream) {
  fold_inputs<T> inputs(ranks, count, misaligned);
  buffer<U> expected(count, output_offset);
  auto actual = expected;
  zero::kernels::fold(zero::host_space{}, std::span<const T* const>(inputs.pointers),
                      expected.data(), count, 0.37F);
  const device_inputs<T> sources(inputs, stream);
  const device_copy<U> output(actual, stream);
  zero::kernels::fold(zero::cuda_space{}, sources.pointers(), output.data(), count, 0.37F,
                      stream.get());
  output.copy_back();
  if (actual.difference(expected) != buffer<U>::npos) {
    FAIL(zero::element_traits<T>::name << " to " << zero::element_traits<U>::name << ", " << ranks
                                       << " ranks, " << count << " elements: element "
                                       << actual.difference(expected));
  }
}

template <class T, class U>
void require_host_bits() {
  const zero::unique_cuda_stream stream;
  const std::size_t many = zero::kernels::max_device_fold_inputs;
  for (const std::size_t ranks :
       {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}, std::size_t{5},
        std::size_t{6}, std::size_t{7}, std::size_t{8}, std::size_t{13}, many}) {
    require_host_bits<T, U>(ranks, 67, ranks, 0, stream);      // all are aligned
    require_host_bits<T, U>(ranks, 19, ranks / 2, 0, stream);  // one input is not
    require_host_bits<T, U>(ranks, 19, ranks, 1, stream);      // the output is not
  }
  for (const std::uint64_t count : sizes()) {
    require_host_bits<T, U>(1 + count % 8, count, many, 0, stream);
  }
}

}  // namespace

TEST_CASE("gpu fold: the sum over 1 to 64 ranks has the host's bits") {
  for_each_precision([]<class P>() {
    using gradient = typename P::gradient_type;
    require_host_bits<gradient, gradient>();
    require_host_bits<gradient, typename zero::element_traits<gradient>::compute_type>();
  });
  require_host_bits<double, double>();
}

TEST_CASE("gpu fold: the output may be one of the inputs") {
  const zero::unique_cuda_stream stream;
  for (std::size_t output = 0; output < 5; ++output) {
    fold_inputs<double> inputs(5, 1003, 99);
    buffer<double> expected(1003, 0);
    zero::kernels::fold(zero::host_space{}, std::span<const double* const>(inputs.pointers),
                        expected.data(), 1003, 1.0F);
    const device_inputs<double> sources(inputs, stream);
    zero::kernels::fold(zero::cuda_space{}, sources.pointers(), sources[output].data(), 1003, 1.0F,
                        stream.get());
    sources[output].copy_back();
    CHECK(inputs.arrays[output].difference(expected) == buffer<double>::npos);
  }
}
