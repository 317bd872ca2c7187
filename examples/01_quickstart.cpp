// SPDX-License-Identifier: Apache-2.0
// Fits a line in eight dimensions on four ranks at stage 2: each rank owns a quarter of gradients
// and optimizer states, sees samples of its own, and ends with the same model as the others.

#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>

namespace {

constexpr std::size_t inputs = 8;

float input(int sample, std::size_t i) {
  return std::sin(static_cast<float>(sample) * (1.3F + static_cast<float>(i)));
}

float train(zero::threads_communicator& ranks) {
  zero::model_layout layout;
  const auto unit = layout.add_unit("linear");
  const auto weights = layout.add_tensor(unit, "weights", {inputs});

  zero::engine<zero::stage2, zero::fp32, zero::threads_communicator, zero::adamw> engine(
      ranks, layout, zero::adamw{.weight_decay = 0});
  engine.initialize([](const zero::tensor_info&, std::uint64_t, std::span<float> values) {
    for (float& value : values) value = 0;
  });

  float error = 0;
  for (int step = 0; step < 800; ++step) {
    const int sample = step * ranks.size() + ranks.rank();
    auto pass = engine.train();
    {
      auto opened = pass.forward(unit);
      const auto w = opened.parameters(weights);
      error = 0;
      for (std::size_t i = 0; i < inputs; ++i) error += (w[i] - 2) * input(sample, i);
    }
    {
      auto opened = pass.backward(unit);
      const auto gradient = opened.gradients(weights);
      for (std::size_t i = 0; i < inputs; ++i) gradient[i] += 2 * error * input(sample, i);
    }
    pass.end();
    engine.step({.lr = 0.03});
  }
  return std::abs(error);
}

}  // namespace

int main() {
  bool fits = true;
  for (const float error : zero::run_threads(4, train)) {
    std::printf("error of the last sample: %.1e\n", static_cast<double>(error));
    fits = fits && error < 1e-3F;
  }
  return fits ? 0 : 1;
}
