// SPDX-License-Identifier: Apache-2.0
// labels: slow
// links: gpt_model
// Attention matters: sequences that repeat a random beginning can be predicted only by looking
// back, further than the pair of bytes that an embedding alone knows.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "data.hpp"
#include "local_model.hpp"
#include "matmul.hpp"

namespace {

struct training {
  gpt::configuration model;
  gpt::copy_task task;
  std::uint64_t steps;
  double lr;
};

// Trains, then returns the mean loss (nats) over fresh sequences, at the bytes that can be known.
double loss_after(const training& plan) {
  constexpr std::uint64_t batch = 16;
  const std::uint64_t length = plan.model.context;
  gpt::single_threaded_math();
  gpt_test::local_model<float> model(plan.model, batch, length, 1);
  gpt_test::plain_adamw<float> optimizer(model);
  std::vector<std::uint8_t> sequence(length + 1);
  std::vector<std::uint8_t> tokens(batch * length);
  std::vector<std::uint8_t> targets(batch * length);
  double sum = 0;
  std::uint64_t determined = 0;
  constexpr std::uint64_t measured_batches = 20;
  for (std::uint64_t step = 0; step < plan.steps + measured_batches; ++step) {
    std::vector<std::uint64_t> periods;
    for (std::uint64_t b = 0; b < batch; ++b) {
      periods.push_back(gpt::draw_copy_sequence(plan.task, step * batch + b, sequence));
      const auto row = static_cast<std::ptrdiff_t>(b * length);
      std::copy(sequence.begin(), sequence.end() - 1, tokens.begin() + row);
      std::copy(sequence.begin() + 1, sequence.end(), targets.begin() + row);
    }
    model.forward(tokens, targets);
    if (step < plan.steps) {
      model.zero_gradients();
      model.backward(tokens, targets);
      const double done = static_cast<double>(step) / static_cast<double>(plan.steps);
      optimizer.step(model, plan.lr * std::min({1.0, 20 * done, 2 * (1 - done)}));
      continue;
    }
    for (std::uint64_t b = 0; b < batch; ++b) {
      for (std::uint64_t i = periods[b]; i < length; ++i, ++determined) {
        sum += static_cast<double>(model.state.losses[b * length + i]);
      }
    }
  }
  return sum / static_cast<double>(determined);
}

}  // namespace

TEST_CASE("copy task: one block learns to look back five bytes") {
  const double loss = loss_after({.model = {1, 32, 2, 24, 16},
                                  .task = {16, 5, 5, 7},
                                  .steps = 200,
                                  .lr = 1e-2});
  INFO("measured 0.008 nats; without attention no better than log(16) = 2.77");
  REQUIRE(loss < 0.1);
}

TEST_CASE("copy task: two blocks find where a period of unknown length began") {
  const double loss = loss_after({.model = {2, 32, 2, 24, 8},
                                  .task = {8, 3, 4, 7},
                                  .steps = 500,
                                  .lr = 1e-2});
  INFO("measured 0.008 nats");
  REQUIRE(loss < 0.1);
}
