// SPDX-License-Identifier: Apache-2.0
// links: gpt_model
#include "units.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

namespace {

struct moments {
  double mean = 0;
  double deviation = 0;
};

moments moments_of(const gpt::configuration& model, gpt::initialization start, std::uint64_t key,
                   std::uint64_t count) {
  double sum = 0;
  double squares = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double value = gpt::initial_value(model, start, key, i, 42);
    sum += value;
    squares += value * value;
  }
  const double n = static_cast<double>(count);
  return {sum / n, std::sqrt(squares / n - sum / n * (sum / n))};
}

}  // namespace

TEST_CASE("units: names, shapes and count of a small model") {
  const gpt::configuration model{.layers = 2, .width = 8, .heads = 2, .context = 16};
  const auto units = gpt::describe_units(model);
  REQUIRE(units.size() == 4);
  REQUIRE(units[0].name == "embedding");
  REQUIRE(units[1].name == "block0");
  REQUIRE(units[2].name == "block1");
  REQUIRE(units[3].name == "final");
  REQUIRE(units[0].tensors[0].shape == std::vector<std::uint64_t>{256, 8});
  REQUIRE(units[0].tensors[1].shape == std::vector<std::uint64_t>{16, 8});
  // Per block: two layer norms, qkv, projection, fc and its projection with their biases.
  const std::uint64_t block = 4 * 8 + (24 * 8 + 24) + (8 * 8 + 8) + (32 * 8 + 32) + (8 * 32 + 8);
  REQUIRE(units[1].elements() == block);
  REQUIRE(gpt::parameter_count(model) == 256 * 8 + 16 * 8 + 2 * block + 2 * 8);
}

TEST_CASE("units: only matrices of products decay") {
  for (const gpt::unit_description& unit : gpt::describe_units({})) {
    for (const gpt::tensor_description& tensor : unit.tensors) {
      const bool is_matrix = tensor.shape.size() == 2 && unit.name != "embedding";
      CAPTURE(unit.name, tensor.name);
      REQUIRE(tensor.decays == is_matrix);
    }
  }
}

TEST_CASE("units: sizes that do not fit each other are refused with their values") {
  REQUIRE_THROWS_WITH(gpt::describe_units({.layers = 1, .width = 10, .heads = 3}),
                      Catch::Contains("width 10") && Catch::Contains("heads 3"));
  REQUIRE_THROWS_AS(gpt::describe_units({.layers = 0}), std::invalid_argument);
  REQUIRE_THROWS_AS(gpt::describe_units({.heads = 0}), std::invalid_argument);
}

TEST_CASE("units: every tensor has a key of its own") {
  std::set<std::uint64_t> keys;
  std::size_t tensors = 0;
  for (const gpt::unit_description& unit : gpt::describe_units({.layers = 12})) {
    for (const gpt::tensor_description& tensor : unit.tensors) {
      keys.insert(gpt::tensor_key(unit.name, tensor.name));
      ++tensors;
    }
  }
  REQUIRE(keys.size() == tensors);
  REQUIRE(gpt::tensor_key("ab", "c") != gpt::tensor_key("a", "bc"));
}

TEST_CASE("initial_value: statistics of each kind") {
  using enum gpt::initialization;
  const gpt::configuration model{.layers = 8};
  constexpr std::uint64_t count = 200'000;
  // Five standard errors of mean and deviation.
  const double tolerance = 5 * 0.02 / std::sqrt(static_cast<double>(count));
  const moments plain = moments_of(model, normal, 1, count);
  REQUIRE(plain.mean == Approx(0).margin(tolerance));
  REQUIRE(plain.deviation == Approx(0.02).margin(tolerance));
  const moments residual = moments_of(model, residual_normal, 1, count);
  REQUIRE(residual.mean == Approx(0).margin(tolerance));
  REQUIRE(residual.deviation == Approx(0.02 / 4).margin(tolerance));  // sqrt(2 * 8) = 4
  REQUIRE(gpt::initial_value(model, ones, 1, 5, 42) == 1.0f);
  REQUIRE(gpt::initial_value(model, zeros, 1, 5, 42) == 0.0f);
}

TEST_CASE("initial_value: neighbours, tensors and seeds are independent") {
  const gpt::configuration model;
  const auto value = [&model](std::uint64_t key, std::uint64_t index, std::uint64_t seed) {
    return static_cast<double>(
        gpt::initial_value(model, gpt::initialization::normal, key, index, seed));
  };
  constexpr std::uint64_t count = 100'000;
  double next_index = 0;
  double next_key = 0;
  double next_seed = 0;
  double distant = 0;  // above 2^32
  for (std::uint64_t i = 0; i < count; ++i) {
    const double here = value(7, i, 1);
    next_index += here * value(7, i + 1, 1);
    next_key += here * value(8, i, 1);
    next_seed += here * value(7, i, 2);
    distant += here * value(7, i + (std::uint64_t{1} << 32), 1);
  }
  // Correlations; five standard errors.
  const double bound = 5 / std::sqrt(static_cast<double>(count));
  for (const double sum : {next_index, next_key, next_seed, distant}) {
    REQUIRE(sum / static_cast<double>(count) / (0.02 * 0.02) == Approx(0).margin(bound));
  }
  // A value depends on nothing but its counters, in any order.
  const double late = value(7, 99, 1);
  const double early = value(7, 3, 1);
  REQUIRE(value(7, 3, 1) == early);
  REQUIRE(value(7, 99, 1) == late);
}
