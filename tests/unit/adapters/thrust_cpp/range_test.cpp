// SPDX-License-Identifier: Apache-2.0
// links: zero_thrust
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <zero/adapters/thrust.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/transform.h>
#include <thrust/universal_vector.h>

#include <catch2/catch.hpp>

#include <zero/backends/self.hpp>
#include <zero/engine.hpp>
#include <zero/error.hpp>

namespace {

using namespace zero;

template <class T, class Role, class Space, class Range>
constexpr bool is_range = std::is_same_v<std::remove_const_t<Range>, range<T, Role, Space>>;

TEST_CASE("as_range: a vector of the host, and a part of it") {
  thrust::host_vector<float> vector{1, 2, 3, 4, 5};
  const auto whole = as_range<full>(vector);
  static_assert(is_range<float, full, host_space, decltype(whole)>);
  CHECK(whole.data() == vector.data());
  CHECK(whole.size() == 5);
  CHECK(whole.padding() == 0);

  const auto part = as_range<shard>(vector.begin() + 1, vector.begin() + 4);
  static_assert(is_range<float, shard, host_space, decltype(part)>);
  CHECK(part.data() == vector.data() + 1);
  CHECK(part.size() == 3);
  part[0] = 20;
  CHECK(vector[1] == 20);
}

TEST_CASE("as_range: what is const stays const") {
  const thrust::host_vector<bfloat16> vector(2);
  static_assert(is_range<const bfloat16, partial, host_space, decltype(as_range<partial>(vector))>);
  static_assert(is_range<const bfloat16, partial, host_space,
                         decltype(as_range<partial>(vector.begin(), vector.end()))>);
  thrust::host_vector<bfloat16> writable(2);
  static_assert(is_range<const bfloat16, partial, host_space,
                         decltype(as_range<partial>(writable.cbegin(), writable.cend()))>);
  CHECK(as_range<partial>(vector).size() == 2);
}

TEST_CASE("as_range: an empty vector gives an empty range") {
  thrust::host_vector<float> vector;
  CHECK(as_range<full>(vector).empty());
  CHECK(as_range<full>(vector.begin(), vector.end()).empty());
}

TEST_CASE("as_range: other vectors of the host") {
  thrust::device_vector<float> device(3, 2.0F);  // the CPP system's
  CHECK(as_range<full>(device)[2] == 2.0F);
  static_assert(is_range<float, full, host_space, decltype(as_range<full>(device))>);
  CHECK(as_range<full>(device.data(), device.data() + 2).size() == 2);

  thrust::universal_vector<double> universal(3, 4.0);
  CHECK(as_range<full>(universal)[2] == 4.0);
  CHECK(as_range<full, host_space>(universal).data() == thrust::raw_pointer_cast(universal.data()));

  std::vector<std::uint16_t> standard{7, 8};
  CHECK(as_range<shard>(standard)[1] == 8);
}

// No CUDA is needed to see which space the types stand for.
TEST_CASE("as_range: memory of the CUDA system") {
  float memory[4] = {};
  const thrust::cuda::pointer<float> on_device(memory);
  const auto range_on_device = as_range<shard>(on_device, on_device + 4);
  static_assert(is_range<float, shard, cuda_space, decltype(range_on_device)>);
  CHECK(range_on_device.data() == memory);
  CHECK(range_on_device.size() == 4);
  const auto same = as_range<shard, cuda_space>(on_device + 1, on_device + 4);
  CHECK(same.data() == memory + 1);

  const thrust::cuda::universal_pointer<const float> anywhere(memory);
  static_assert(is_range<const float, full, host_space,
                         decltype(as_range<full, host_space>(anywhere, anywhere + 4))>);
  static_assert(is_range<const float, full, cuda_space,
                         decltype(as_range<full, cuda_space>(anywhere, anywhere + 4))>);
  CHECK(as_range<full, cuda_space>(anywhere, anywhere + 3).size() == 3);
}

TEST_CASE("copies: a range into a vector and back") {
  const std::vector<float> values{1, 2, 3};
  thrust::host_vector<float> vector(3);
  copy_to_vector(as_range<shard>(values), vector);
  CHECK(vector == values);

  thrust::device_vector<float> other(3);
  copy_to_vector(as_range<shard>(vector), other);
  std::vector<float> back(3);
  copy_from_vector(other, as_range<full>(back));
  CHECK(back == values);

  thrust::host_vector<float> none;
  copy_to_vector(as_range<shard>(none), none);
  copy_from_vector(none, as_range<full>(none));
}

TEST_CASE("copies: sizes that differ are an error, and nothing is copied") {
  thrust::host_vector<float> three{1, 2, 3};
  std::vector<float> two{8, 9};
  CHECK_THROWS_WITH(copy_to_vector(as_range<full>(two), three),
                    "zero::copy_to_vector: 2 elements into room for 3");
  CHECK_THROWS_WITH(copy_from_vector(three, as_range<full>(two)),
                    "zero::copy_from_vector: 3 elements into room for 2");
  CHECK_THROWS_AS(copy_from_vector(three, range<float, full>()), usage_error);
  CHECK(three == std::vector<float>{1, 2, 3});
  CHECK(two == std::vector<float>{8, 9});
}

TEST_CASE("copies: a range of the vector itself") {
  thrust::host_vector<float> vector{1, 2, 3};
  copy_to_vector(as_range<full>(vector), vector);
  CHECK(vector == std::vector<float>{1, 2, 3});
}

TEST_CASE("as_vector_view: algorithms of Thrust on a range") {
  std::vector<float> values{3, 1, 2};
  const auto view = as_vector_view(as_range<shard>(values));
  CHECK(view.size() == 3);
  CHECK(view[1] == 1);
  CHECK(*thrust::max_element(view.begin(), view.end()) == 3);
  thrust::fill(thrust::device, view.begin(), view.end(), 5.0F);
  CHECK(values == std::vector<float>{5, 5, 5});
  CHECK(as_vector_view(range<const float, full>()).empty());
  static_assert(
      std::is_same_v<decltype(as_vector_view(range<const float, full>()).begin()), const float*>);
}

TEST_CASE("as_vector_view: parameters and gradients of an engine") {
  model_layout layout;
  const auto unit = layout.add_unit("unit");
  const auto weights = layout.add_tensor(unit, "weights", {4});
  self_communicator self;
  engine<stage1, fp32, self_communicator, sgd> engine(self, layout, sgd{.momentum = 0});
  engine.initialize([](const tensor_info&, std::uint64_t first, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(first + i);
  });

  float norm = 0;
  {
    auto pass = engine.train();
    {
      auto opened = pass.forward(unit);
      const auto w = as_vector_view(opened.parameters(weights));
      norm = thrust::inner_product(w.begin(), w.end(), w.begin(), 0.0F);
    }
    {
      auto opened = pass.backward(unit);
      const auto g = as_vector_view(opened.gradients(weights));
      thrust::fill(g.begin(), g.end(), 2.0F);
    }
    pass.end();
  }
  engine.step({.lr = 0.5});
  CHECK(norm == 0 + 1 + 4 + 9);

  auto pass = engine.evaluate();
  auto opened = pass.forward(unit);
  thrust::host_vector<float> after(4);
  copy_to_vector(opened.parameters(weights), after);
  CHECK(after == std::vector<float>{-1, 0, 1, 2});
}

}  // namespace
