// SPDX-License-Identifier: Apache-2.0
// timeout: 300
// links: zero_gpu_listener zero_gpu_kernels
#include <cstddef>
#include <cstdint>

#include <catch2/catch.hpp>
#include <zero/kernels/cast.hpp>

#include "gpu/device_array.hpp"
#include "gpu/selection.hpp"

namespace {

using namespace gpu_tests;
using kernel_tests::buffer;
using kernel_tests::filled;

/// `run(space, input, output)` with the host's and with the device's space gives the same bits.
template <class A, class B, class OnHost, class OnDevice>
void require_host_bits(const char* what, OnHost on_host, OnDevice on_device) {
  const zero::unique_cuda_stream stream;
  for (const std::uint64_t count : sizes()) {
    for (const std::size_t offset : {std::size_t{0}, static_cast<std::size_t>(1 + count % 2)}) {
      buffer<A> input = filled<A>(count, offset, count);
      buffer<B> expected = filled<B>(count, offset == 0 ? 0 : (count + 1) % 2, count + 1);
      buffer<B> actual = expected;
      on_host(input.data(), expected.data(), count);
      const device_copy<A> device_input(input, stream);
      const device_copy<B> device_output(actual, stream);
      on_device(static_cast<const A*>(device_input.data()), device_output.data(), count,
                stream.get());
      device_output.copy_back();
      if (actual.difference(expected) != buffer<B>::npos) {
        FAIL(what << ' ' << zero::element_traits<A>::name << " to " << zero::element_traits<B>::name
                  << ", " << count << " elements at " << offset << ": element "
                  << actual.difference(expected));
      }
    }
  }
}

template <class A, class B>
void require_convert() {
  require_host_bits<A, B>(
      "convert",
      [](const A* input, B* output, std::uint64_t count) {
        zero::kernels::convert(zero::host_space{}, input, output, count);
      },
      [](const A* input, B* output, std::uint64_t count, cudaStream_t stream) {
        zero::kernels::convert(zero::cuda_space{}, input, output, count, stream);
      });
}

template <class G, class A>
void require_accumulate() {
  require_host_bits<G, A>(
      "accumulate",
      [](const G* input, A* sums, std::uint64_t count) {
        zero::kernels::accumulate(zero::host_space{}, input, sums, count);
      },
      [](const G* input, A* sums, std::uint64_t count, cudaStream_t stream) {
        zero::kernels::accumulate(zero::cuda_space{}, input, sums, count, stream);
      });
}

template <class T>
void require_zeros() {
  require_host_bits<T, T>(
      "fill_zero",
      [](const T*, T* output, std::uint64_t count) {
        zero::kernels::fill_zero(zero::host_space{}, output, count);
      },
      [](const T*, T* output, std::uint64_t count, cudaStream_t stream) {
        zero::kernels::fill_zero(zero::cuda_space{}, output, count, stream);
      });
}

}  // namespace

TEST_CASE("gpu casts: converting between the types of a policy gives the host's bits") {
  for_each_precision([]<class P>() {
    using gradient = typename P::gradient_type;
    using accumulation = typename P::accumulation_type;
    using parameter = typename P::parameter_type;
    require_convert<gradient, accumulation>();
    require_convert<accumulation, gradient>();
    require_convert<parameter, float>();
    require_convert<float, parameter>();
    require_convert<float, gradient>();
  });
}

TEST_CASE("gpu casts: accumulating gives the host's bits") {
  for_each_precision([]<class P>() {
    using gradient = typename P::gradient_type;
    require_accumulate<gradient, typename P::accumulation_type>();
    require_accumulate<float, gradient>();
  });
}

TEST_CASE("gpu casts: zeros are zero bits, and nothing beside them changes") {
  for_each_precision([]<class P>() {
    require_zeros<typename P::parameter_type>();
    require_zeros<typename P::gradient_type>();
    require_zeros<typename P::accumulation_type>();
    require_zeros<double>();
  });
}
