// SPDX-License-Identifier: Apache-2.0
// One training loop, four stages. The stage changes what a rank holds and what is moved, both as
// the ZeRO paper says to the byte, and nothing else: all stages end with the same bits.

#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using precision = zero::bf16_mixed;
constexpr int ranks = 4, steps = 20;
constexpr std::size_t width = 24;
constexpr std::size_t depth = 3;

/// depth layers, each h = tanh(W h) and a unit of its own.
struct network {
  zero::model_layout layout;
  std::vector<zero::unit_id> units;
  std::vector<zero::tensor_id> weights;

  network() {
    for (std::size_t i = 0; i < depth; ++i) {
      units.push_back(layout.add_unit("layer" + std::to_string(i)));
      weights.push_back(
          layout.add_tensor(units[i], "layer" + std::to_string(i) + ".weight", {width, width}));
    }
  }
};

/// Values that depend on the tensor's name and the position alone: the same model at every N.
void initial_values(const zero::tensor_info& tensor, std::uint64_t first, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto phase = static_cast<float>((tensor.key + 13 * (first + i)) % 1000);
    values[i] = 0.3F * std::sin(phase);
  }
}

/// One sample, forward and backward. Activations belong to the caller, the library never sees them.
template <class Engine>
float run_pass(Engine& engine, const network& net, float seed) {
  std::vector<std::vector<float>> h(depth + 1, std::vector<float>(width));
  std::vector<float> w(width * width);
  for (std::size_t c = 0; c < width; ++c) h[0][c] = std::sin(seed * static_cast<float>(c + 1));

  auto pass = engine.train();
  for (std::size_t l = 0; l < depth; ++l) {
    const auto opened = pass.forward(net.units[l]);  // at stage 3 the unit is gathered here
    opened.read(net.weights[l], w);                  // converted to fp32
    for (std::size_t r = 0; r < width; ++r) {
      float sum = 0;
      for (std::size_t c = 0; c < width; ++c) sum += w[r * width + c] * h[l][c];
      h[l + 1][r] = std::tanh(sum);
    }
  }
  float loss = 0;
  std::vector<float> delta(width);
  for (std::size_t r = 0; r < width; ++r) {
    delta[r] = h[depth][r] - 0.5F * h[0][width - 1 - r];
    loss += 0.5F * delta[r] * delta[r];
  }
  std::vector<float> dw(width * width);
  for (std::size_t l = depth; l-- > 0;) {
    const auto opened = pass.backward(net.units[l]);
    opened.read(net.weights[l], w);
    std::vector<float> below(width);
    for (std::size_t r = 0; r < width; ++r) {
      const float d = delta[r] * (1 - h[l + 1][r] * h[l + 1][r]);
      for (std::size_t c = 0; c < width; ++c) {
        dw[r * width + c] = d * h[l][c];
        below[c] += w[r * width + c] * d;
      }
    }
    opened.add(net.weights[l], dw);  // reduced over the ranks when the scope ends
    delta = below;
  }
  pass.end();
  return loss;
}

struct outcome {
  zero::ledger ledger;
  std::vector<float> parameters;
  float first_loss = 0;
  float last_loss = 0;
};

template <class Stage>
outcome train(zero::threads_communicator& threads) {
  const network net;
  zero::engine<Stage, precision, zero::threads_communicator, zero::adamw> engine(
      threads, net.layout, zero::adamw{});
  engine.initialize(initial_values);
  outcome result;
  for (int step = 0; step < steps; ++step) {
    result.last_loss = run_pass(engine, net, 0.1F * static_cast<float>(threads.rank() + 1));
    if (step == 0) result.first_loss = result.last_loss;
    engine.step({.lr = 0.01});
  }
  result.ledger = engine.ledger();
  for (const zero::tensor_id tensor : net.weights) {
    std::vector<float> values(engine.layout().info(tensor).elements);
    engine.export_tensor(tensor, values);
    result.parameters.insert(result.parameters.end(), values.begin(), values.end());
  }
  return result;
}

/// Prints one row; true when the ledgers agree with the paper.
template <class Stage>
bool report(const std::vector<outcome>& results) {
  const std::uint64_t psi = network().layout.trainable_elements();
  const zero::state_formula formula = zero::formula_of<Stage, precision, zero::adamw>();
  const std::uint64_t moved = zero::volume_of(zero::flags_of<Stage>()).elements(psi);
  const std::uint64_t expected = formula.all_ranks_bytes(psi, ranks);
  std::uint64_t held = 0;
  for (const outcome& rank : results) held += rank.ledger.held.model_states();
  const outcome& first = results.front();
  std::printf(
      "stage %s: all ranks hold %6llu bytes (formula %6llu), a step moves %llu Psi (%llu); "
      "loss %.3f -> %.3f\n",
      Stage::name.data(), static_cast<unsigned long long>(held),
      static_cast<unsigned long long>(expected),
      static_cast<unsigned long long>(first.ledger.step.total() / psi),
      static_cast<unsigned long long>(moved / psi), static_cast<double>(first.first_loss),
      static_cast<double>(first.last_loss));
  return held == expected && first.ledger.step.total() == moved &&
         first.last_loss < first.first_loss;
}

}  // namespace

int main() {
  const auto reference = zero::run_threads(ranks, train<zero::stage0>);
  bool passed = report<zero::stage0>(reference);
  const auto check = [&]<class Stage>(Stage) {
    const auto results = zero::run_threads(ranks, train<Stage>);
    passed = report<Stage>(results) && passed;
    for (const outcome& r : results) passed = passed && r.parameters == reference[0].parameters;
  };
  check(zero::stage1{});
  check(zero::stage2{});
  check(zero::stage3{});
  std::printf("parameters bitwise equal over stages, and the rest: %s\n", passed ? "yes" : "NO");
  return passed ? 0 : 1;
}
