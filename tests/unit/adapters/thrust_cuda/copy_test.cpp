// SPDX-License-Identifier: Apache-2.0
// labels: simulated_device
// links: zero_thrust zero_simulated_device
#include <zero/adapters/thrust.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/universal_vector.h>

#include <catch2/catch.hpp>

#include <zero/cuda/event.hpp>
#include <zero/cuda/memory.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/error.hpp>

#include "support/simulated_device/simulated_device.hpp"

// Thrust's CUDA system without nvcc: what moves bytes and names memory needs none.

using namespace zero;
using namespace zero::test;

namespace {

// Filling a device_vector is a kernel, so this stands for one that was filled elsewhere.
class filled_device_vector {
 public:
  explicit filled_device_vector(std::size_t count)
      : memory_(0),
        size_(count),
        data_(static_cast<float*>(memory_.allocate(count * sizeof(float), 4))) {}
  filled_device_vector(const filled_device_vector&) = delete;
  filled_device_vector& operator=(const filled_device_vector&) = delete;
  ~filled_device_vector() { memory_.deallocate(data_, size_ * sizeof(float), 4); }

  thrust::device_ptr<float> begin() const { return thrust::device_ptr<float>(data_); }
  std::size_t size() const { return size_; }

 private:
  cuda_memory memory_;
  std::size_t size_;
  float* data_;
};

template <class T, class Role, class Space, class Range>
constexpr bool is_range = std::is_same_v<std::remove_const_t<Range>, range<T, Role, Space>>;

TEST_CASE("thrust copies: to a device and back, ordered in a stream") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simulated_device device({.seed = seed});
    {
      const unique_cuda_stream stream;
      const unique_cuda_stream other;
      filled_device_vector first(5);
      filled_device_vector second(5);
      const thrust::host_vector<float> values{1, 2, 3, 4, 5};
      thrust::host_vector<float> result(5);

      copy_from_vector(values, as_range<full>(first), stream);
      copy_to_vector(as_range<full>(first), second, stream);
      unique_cuda_event copied;
      copied.record(stream);
      copied.hold(other);
      copy_to_vector(as_range<full>(second), result, other);
      other.synchronize();
      CHECK(result == values);
      stream.synchronize();
    }
    CHECK(device.findings().empty());
  }
}

TEST_CASE("thrust copies: the host does not wait for them") {
  bool was_early = false;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simulated_device device({.seed = seed});
    const unique_cuda_stream stream;
    filled_device_vector vector(1);
    const std::vector<float> one{1};
    std::vector<float> result{0};
    copy_from_vector(one, as_range<full>(vector), stream);
    copy_from_vector(vector, as_range<full>(result), stream);
    was_early = was_early || result[0] == 0;
    stream.synchronize();
    CHECK(result[0] == 1);
  }
  CHECK(was_early);
}

TEST_CASE("thrust copies: sizes that differ are an error before anything is enqueued") {
  simulated_device device;
  const unique_cuda_stream stream;
  filled_device_vector three(3);
  std::vector<float> two{8, 9};
  CHECK_THROWS_WITH(copy_from_vector(three, as_range<full>(two), stream),
                    "zero::copy_from_vector: 3 elements into room for 2");
  CHECK_THROWS_AS(copy_to_vector(as_range<full>(two), three, stream), usage_error);
  stream.synchronize();
  CHECK(device.nodes_run() == 0);
  CHECK(two == std::vector<float>{8, 9});
}

TEST_CASE("thrust copies: a failure of the runtime is typed, and nothing to copy is no call") {
  simulated_device device;
  device.fail({.function = "cudaMemcpyAsync", .call = 0, .code = 700});
  const unique_cuda_stream stream;
  std::vector<float> none;
  copy_to_vector(as_range<full>(none), none, stream);
  filled_device_vector vector(2);
  std::vector<float> values(2);
  CHECK_THROWS_AS(copy_from_vector(vector, as_range<full>(values), stream), cuda_error);
}

TEST_CASE("as_range: vectors of the CUDA system") {
  // No algorithm, so that no simulated kernel is needed.
  thrust::device_vector<float> vector;
  static_assert(is_range<float, shard, cuda_space, decltype(as_range<shard>(vector))>);
  static_assert(
      is_range<float, shard, cuda_space, decltype(as_range<shard>(vector.begin(), vector.end()))>);
  const thrust::device_vector<float>& constant = vector;
  static_assert(is_range<const float, shard, cuda_space, decltype(as_range<shard>(constant))>);
  // Only named: its memory is none that the simulated device has.
  using universal = thrust::universal_vector<float>&;
  static_assert(is_range<float, full, cuda_space,
                         decltype(as_range<full, cuda_space>(std::declval<universal>()))>);
  static_assert(is_range<float, full, host_space,
                         decltype(as_range<full, host_space>(std::declval<universal>()))>);
  thrust::host_vector<float> host;
  static_assert(is_range<float, full, host_space, decltype(as_range<full>(host))>);
  CHECK(as_range<shard>(vector).empty());
  CHECK(as_range<shard>(vector.begin(), vector.end()).empty());
}

TEST_CASE("as_vector_view: a range of a device has iterators of the device") {
  float memory[4] = {};
  const range<const float, partial, cuda_space> gradients(memory, 4);
  const auto view = as_vector_view(gradients);
  static_assert(std::is_same_v<decltype(view.begin()), thrust::device_ptr<const float>>);
  CHECK(thrust::raw_pointer_cast(view.begin()) == memory);
  CHECK(view.end() - view.begin() == 4);
  const auto back = as_range<partial>(view.begin(), view.end());
  static_assert(is_range<const float, partial, cuda_space, decltype(back)>);
  CHECK(back.data() == memory);
}

}  // namespace
