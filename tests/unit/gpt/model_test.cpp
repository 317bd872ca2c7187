// SPDX-License-Identifier: Apache-2.0
// links: gpt_model
#include "model.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "counter_random.hpp"
#include "local_model.hpp"
#include "matmul.hpp"
#include "vector_math.hpp"

namespace {

constexpr gpt::configuration model_sizes{
    .layers = 2, .width = 32, .heads = 4, .context = 24, .vocabulary = 256};
constexpr std::uint64_t batch = 3;

std::vector<std::uint8_t> random_bytes(std::uint64_t key, std::uint64_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(gpt::counter_hash({key, i}));
  }
  return bytes;
}

template <class Real>
gpt_test::local_model<Real> trained_once(std::uint64_t seed) {
  gpt_test::local_model<Real> model(model_sizes, batch, model_sizes.context, seed);
  const auto tokens = random_bytes(1, model.state.rows());
  const auto targets = random_bytes(2, model.state.rows());
  model.forward(tokens, targets);
  model.backward(tokens, targets);
  return model;
}

}  // namespace

TEST_CASE("model: float agrees with double in losses and gradients") {
  gpt::single_threaded_math();
  const auto narrow = trained_once<float>(3);
  const auto wide = trained_once<double>(3);
  for (std::size_t row = 0; row < narrow.state.losses.size(); ++row) {
    REQUIRE(static_cast<double>(narrow.state.losses[row]) ==
            Approx(wide.state.losses[row]).margin(1e-5));
  }
  for (std::size_t tensor = 0; tensor < wide.gradients.size(); ++tensor) {
    double squares = 0;
    double squared_error = 0;
    for (std::size_t i = 0; i < wide.gradients[tensor].size(); ++i) {
      const double expected = wide.gradients[tensor][i];
      const double difference = static_cast<double>(narrow.gradients[tensor][i]) - expected;
      squares += expected * expected;
      squared_error += difference * difference;
    }
    CAPTURE(tensor);
    CHECK(std::sqrt(squared_error / squares) < 5e-6);  // measured 7e-7
  }
}

TEST_CASE("model: a fresh one knows nothing, so its loss is near log(256)") {
  gpt::single_threaded_math();
  gpt_test::local_model<float> model(model_sizes, batch, model_sizes.context, 1);
  const auto tokens = random_bytes(1, model.state.rows());
  const auto targets = random_bytes(2, model.state.rows());
  REQUIRE(model.forward(tokens, targets) == Approx(std::log(256.0)).margin(0.1));
}

TEST_CASE("model: no byte sees a later one") {
  gpt::single_threaded_math();
  gpt_test::local_model<float> model(model_sizes, batch, model_sizes.context, 9);
  const auto targets = random_bytes(2, model.state.rows());
  auto tokens = random_bytes(1, model.state.rows());
  model.forward(tokens, targets);
  const std::vector<float> before = model.state.losses;
  const std::uint64_t changed = model_sizes.context + 10;  // position 10 of the second sequence
  tokens[changed] = static_cast<std::uint8_t>(tokens[changed] + 1);
  model.forward(tokens, targets);
  for (std::uint64_t row = 0; row < model.state.rows(); ++row) {
    const bool may_differ = row >= changed && row < 2 * model_sizes.context;
    CAPTURE(row);
    REQUIRE((model.state.losses[row] != before[row]) == may_differ);
  }
}

TEST_CASE("model: the same input gives the same bits") {
  gpt::single_threaded_math();
  const auto first = trained_once<float>(4);
  const auto second = trained_once<float>(4);
  REQUIRE(first.state.losses == second.state.losses);
  REQUIRE(first.gradients == second.gradients);
}

TEST_CASE("model: the logits of one row are those of the head") {
  gpt::single_threaded_math();
  gpt_test::local_model<float> model(model_sizes, batch, model_sizes.context, 2);
  const auto tokens = random_bytes(1, model.state.rows());
  model.forward(tokens, random_bytes(2, model.state.rows()));
  constexpr std::uint64_t row = 30;
  std::vector<float> logits(256);
  gpt::head_logits<float>(model.embedding(), model.state, row, logits);
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit));
  }
  for (std::size_t token = 0; token < 256; ++token) {
    const double expected = std::exp(static_cast<double>(logits[token])) / sum;
    REQUIRE(static_cast<double>(model.state.probabilities[row * 256 + token]) ==
            Approx(expected).epsilon(1e-5));
  }
}

TEST_CASE("model: wrong sizes are refused with their values") {
  gpt_test::local_model<double> model(
      {.layers = 1, .width = 4, .heads = 1, .context = 4, .vocabulary = 5}, 1, 4, 1);
  const std::vector<std::uint8_t> four{0, 1, 2, 3};
  const std::vector<std::uint8_t> three{0, 1, 2};
  const std::vector<std::uint8_t> foreign{0, 1, 2, 9};
  REQUIRE_THROWS_WITH(model.forward(three, four), Catch::Contains("3 bytes given"));
  REQUIRE_THROWS_WITH(model.forward(four, three), Catch::Contains("3 bytes given"));
  REQUIRE_THROWS_WITH(model.forward(foreign, four), Catch::Contains("byte 9 given"));
  REQUIRE_THROWS_WITH(gpt::activations<float>(model_sizes, 1, 25), Catch::Contains("length 25"));
  const std::vector<float*> pointers(3);
  REQUIRE_THROWS_WITH(gpt::block_from<float*>(pointers), Catch::Contains("12 tensors, not 3"));
}

TEST_CASE("exponential: relative error in float, limits, not a number") {
  double worst = 0;
  for (int i = -86'000; i < 88'000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    const double expected = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(gpt::exponential(x)) / expected - 1));
  }
  CAPTURE(worst);
  CHECK(worst < 2e-7);  // measured 9.6e-8
  REQUIRE(gpt::exponential(0.0f) == 1.0f);
  const float infinity = std::numeric_limits<float>::infinity();
  REQUIRE(gpt::exponential(-infinity) == gpt::exponential(-87.0f));
  REQUIRE(gpt::exponential(infinity) == gpt::exponential(88.0f));
  REQUIRE(std::isnan(gpt::exponential(std::numeric_limits<float>::quiet_NaN())));
}
