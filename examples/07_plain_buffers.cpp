// SPDX-License-Identifier: Apache-2.0
// For programs in plain C style: one flat parameter buffer, a struct of pointers into it, functions
// that know nothing of this library. Stage 1 needs no scopes: gradients are written where they lie,
// and the end of the pass reduces them.

#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>

namespace {

// --- the program as it was ------------------------------------------------------------------

constexpr std::size_t inputs = 6;
constexpr std::size_t hidden = 16;

struct parameters {
  const float* w1;  // hidden x inputs
  const float* b1;
  const float* w2;  // hidden
};
struct gradients {
  float* w1;
  float* b1;
  float* w2;
};

/// y = w2 . tanh(W1 x + b1) against sin(x0 + ... + x5); returns the loss, adds to the gradients.
float forward_backward(const parameters& p, const gradients& g, int sample) {
  float x[inputs];
  float sum = 0;
  for (std::size_t i = 0; i < inputs; ++i) {
    x[i] = std::sin(static_cast<float>(sample + 1) * static_cast<float>(i + 2));
    sum += x[i];
  }
  float h[hidden];
  float y = 0;
  for (std::size_t j = 0; j < hidden; ++j) {
    float z = p.b1[j];
    for (std::size_t i = 0; i < inputs; ++i) z += p.w1[j * inputs + i] * x[i];
    h[j] = std::tanh(z);
    y += p.w2[j] * h[j];
  }
  const float error = y - std::sin(0.3F * sum);
  for (std::size_t j = 0; j < hidden; ++j) {
    g.w2[j] += error * h[j];
    const float dz = error * p.w2[j] * (1 - h[j] * h[j]);
    g.b1[j] += dz;
    for (std::size_t i = 0; i < inputs; ++i) g.w1[j * inputs + i] += dz * x[i];
  }
  return 0.5F * error * error;
}

// --- and its training loop ------------------------------------------------------------------

struct outcome {
  float first_loss = 0;
  float last_loss = 0;
  bool addresses_are_fixed = true;
  zero::ledger ledger;
};

outcome train(zero::threads_communicator& ranks) {
  zero::model_layout layout;
  const auto all = layout.add_unit("model");  // one unit: one flat range
  const auto w1 = layout.add_tensor(all, "w1", {hidden, inputs});
  const auto b1 = layout.add_tensor(all, "b1", {hidden}, zero::no_decay);
  const auto w2 = layout.add_tensor(all, "w2", {hidden});

  zero::engine<zero::stage1, zero::fp32, zero::threads_communicator, zero::adamw> engine(
      ranks, layout, zero::adamw{});
  engine.initialize([](const zero::tensor_info& t, std::uint64_t first, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.5F * std::sin(static_cast<float>(t.key % 97 + first + i));
    }
  });

  // The offsets of a unit's tensors are plain arithmetic on one base address.
  const float* const base = engine.parameters(w1).data() - layout.offset(w1);
  outcome result;
  constexpr int steps = 300;
  constexpr int batch = 8;
  for (int step = 0; step < steps; ++step) {
    // Asking by tensor waits for the gather that follows an update, should it still be under way.
    const parameters p{engine.parameters(w1).data(), engine.parameters(b1).data(),
                       engine.parameters(w2).data()};
    result.addresses_are_fixed = result.addresses_are_fixed && p.w1 == base + layout.offset(w1) &&
                                 p.b1 == base + layout.offset(b1) &&
                                 p.w2 == base + layout.offset(w2);
    auto pass = engine.train();
    // Zero-filled by the engine at the first access of a pass.
    const gradients g{pass.gradients(w1).data(), pass.gradients(b1).data(),
                      pass.gradients(w2).data()};
    float loss = 0;
    for (int s = 0; s < batch; ++s) {
      loss += forward_backward(p, g, (ranks.rank() * batch + s) % 24) / batch;
    }
    pass.end();  // reduce-scatter
    // The gradients are sums over the batch: divide by all samples in place of the ranks.
    engine.step({.lr = 0.01, .divisor = ranks.size() * batch});  // update, all-gather
    if (step == 0) result.first_loss = loss;
    result.last_loss = loss;
  }
  result.ledger = engine.ledger();
  return result;
}

}  // namespace

int main() {
  const auto results = zero::run_threads(3, train);
  bool passed = true;
  for (const outcome& r : results) {
    std::printf("loss %.4f -> %.6f, parameters %llu, gradients %llu, optimizer %llu bytes\n",
                static_cast<double>(r.first_loss), static_cast<double>(r.last_loss),
                static_cast<unsigned long long>(r.ledger.held.parameters),
                static_cast<unsigned long long>(r.ledger.held.gradients),
                static_cast<unsigned long long>(r.ledger.held.optimizer));
    const std::uint64_t psi = hidden * inputs + hidden + hidden;
    passed = passed && r.last_loss < 0.1F * r.first_loss && r.addresses_are_fixed &&
             r.ledger.held.parameters == 4 * psi && r.ledger.held.gradients == 4 * psi &&
             r.ledger.step.total() == 2 * psi;
  }
  return passed ? 0 : 1;
}
