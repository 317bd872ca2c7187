// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <array>
#include <string>

#include <zero/backends/self.hpp>

#include "support/rank_runner.hpp"

using namespace zero;
using zero::test::error_of;
using zero::test::outcome;

TEST_CASE("one rank: a sum is the input, scaled and rounded once") {
  self_communicator self;
  const std::array<bfloat16, 2> in{bfloat16(3.0F), bfloat16(-1.0F)};
  std::array<float, 2> out{};
  self.reduce_scatter(range<const bfloat16, partial>(in.data(), 2),
                      range<float, shard>(out.data(), 2), {.scale = 0.3F});
  CHECK(out[0] == 3.0F * 0.3F);
  CHECK(out[1] == -0.3F);
}

TEST_CASE("one rank: in place the sum is scaled where it lies") {
  self_communicator self;
  std::array<float, 3> data{1, 2, 3};
  self.reduce_scatter(range<const float, partial>(data.data(), 3),
                      range<float, shard>(data.data(), 3), {.scale = 2.0F});
  CHECK(data == std::array<float, 3>{2, 4, 6});
  self.reduce_scatter(range<const float, partial>(data.data(), 3),
                      range<float, shard>(data.data(), 3));
  CHECK(data == std::array<float, 3>{2, 4, 6});
}

TEST_CASE("one rank: after an abort every call throws its reason") {
  self_communicator self;
  self.abort("first");
  self.abort("second");
  double value = 1;
  const auto error = error_of([&] { self.all_reduce(range<double, full>(&value, 1)); });
  CHECK(error.kind == outcome::aborted);
  CHECK(error.text == "self rank 0, all_reduce #0, peer 0: first");
  CHECK(error_of([&] { self.split(0); }).kind == outcome::aborted);
}
