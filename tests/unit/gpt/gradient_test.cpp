// SPDX-License-Identifier: Apache-2.0
// links: gpt_model
// The backward functions against finite differences of the forward functions, in double.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "counter_random.hpp"
#include "local_model.hpp"

namespace {

constexpr gpt::configuration small_model{
    .layers = 2, .width = 8, .heads = 2, .context = 6, .vocabulary = 11};
constexpr std::uint64_t batch = 2;
constexpr std::uint64_t length = 5;  // below the context: a position without a token
constexpr std::uint64_t rows = batch * length;

std::vector<std::uint8_t> random_bytes(std::uint64_t key) {
  std::vector<std::uint8_t> bytes(rows);
  for (std::uint64_t i = 0; i < rows; ++i) {
    bytes[i] =
        static_cast<std::uint8_t>(gpt::counter_hash({key, i}) % small_model.vocabulary);
  }
  return bytes;
}

// Larger values than a fresh model has, so that every nonlinearity is bent and no gradient small.
gpt_test::local_model<double> random_model(std::uint64_t seed) {
  gpt_test::local_model<double> model(small_model, batch, length, seed);
  for (std::size_t tensor = 0; tensor < model.parameters.size(); ++tensor) {
    for (std::size_t i = 0; i < model.parameters[tensor].size(); ++i) {
      model.parameters[tensor][i] += 0.4 * gpt::standard_normal(seed, tensor, i);
    }
  }
  return model;
}

struct largest_error {
  double difference = 0;
  double gradient = 0;
};

// Every element of one tensor.
largest_error check_tensor(gpt_test::local_model<double>& model, std::size_t tensor,
                           const std::vector<std::uint8_t>& tokens,
                           const std::vector<std::uint8_t>& targets) {
  constexpr double h = 1e-5;
  largest_error worst;
  for (std::size_t i = 0; i < model.parameters[tensor].size(); ++i) {
    double& parameter = model.parameters[tensor][i];
    const double before = parameter;
    parameter = before + h;
    const double above = model.forward(tokens, targets);
    parameter = before - h;
    const double below = model.forward(tokens, targets);
    parameter = before;
    const double expected = (above - below) / (2 * h);
    const double gradient = model.gradients[tensor][i];
    worst.difference = std::max(worst.difference, std::abs(gradient - expected));
    worst.gradient = std::max(worst.gradient, std::abs(gradient));
  }
  return worst;
}

}  // namespace

TEST_CASE("gradients: every element of every tensor agrees with finite differences") {
  constexpr std::uint64_t seed = 5;
  auto model = random_model(seed);
  const auto tokens = random_bytes(1);
  const auto targets = random_bytes(2);
  model.forward(tokens, targets);
  model.backward(tokens, targets);
  std::size_t tensor = 0;
  for (const gpt::unit_description& unit : model.units) {
    for (const gpt::tensor_description& description : unit.tensors) {
      const largest_error worst = check_tensor(model, tensor, tokens, targets);
      CAPTURE(seed, unit.name, description.name, worst.difference, worst.gradient);
      CHECK(worst.difference < 2e-9);  // measured 2e-10
      CHECK(worst.gradient > 1e-3);
      ++tensor;
    }
  }
}

TEST_CASE("gradients: they are added, and multiplied by the loss scale") {
  auto model = random_model(6);
  const auto tokens = random_bytes(3);
  const auto targets = random_bytes(4);
  model.forward(tokens, targets);
  model.backward(tokens, targets);
  const auto once = model.gradients;
  model.forward(tokens, targets);
  model.backward(tokens, targets, 2.0);
  for (std::size_t tensor = 0; tensor < once.size(); ++tensor) {
    for (std::size_t i = 0; i < once[tensor].size(); ++i) {
      REQUIRE(model.gradients[tensor][i] == Approx(3 * once[tensor][i]).margin(1e-14));
    }
  }
}

TEST_CASE("gradients: the embedding gets both shares, unused positions none") {
  auto model = random_model(7);
  const auto tokens = random_bytes(5);
  auto targets = random_bytes(6);
  model.forward(tokens, targets);
  model.backward(tokens, targets);
  const std::vector<double>& wte = model.gradients[0];
  // The head moves every row of wte, also those of bytes that are nowhere in the input.
  for (std::uint64_t byte = 0; byte < small_model.vocabulary; ++byte) {
    REQUIRE(wte[byte * small_model.width] != 0);
  }
  const std::vector<double>& wpe = model.gradients[1];
  REQUIRE(wpe[(length - 1) * small_model.width] != 0);
  REQUIRE(wpe[length * small_model.width] == 0);
}
