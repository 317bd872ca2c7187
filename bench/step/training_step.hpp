// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <zero/zero.hpp>

// One training step without a model: forward and backward open the units and fill the gradients
// with a constant, so that what is measured is the library's own share. Ranks are threads of this
// process.
namespace step_bench {

inline constexpr std::uint64_t units = 4;
inline constexpr int steps = 4;

struct measured {
  std::vector<double> seconds;  ///< of each step
  zero::ledger ledger;
};

inline zero::model_layout make_layout(std::uint64_t psi) {
  zero::model_layout layout;
  for (std::uint64_t u = 0; u < units; ++u) {
    const std::string name = "unit" + std::to_string(u);
    layout.add_tensor(layout.add_unit(name), name, {psi / units});
  }
  return layout;
}

template <class Engine>
void run_step(Engine& engine) {
  const zero::model_layout& layout = engine.layout();
  auto pass = engine.train();
  for (std::uint32_t u = 0; u < units; ++u) pass.forward(zero::unit_id{u}).finish();
  for (std::uint32_t u = units; u-- > 0;) {
    const auto opened = pass.backward(zero::unit_id{u});
    const auto values = opened.gradients(layout.tensors(zero::unit_id{u})[0], zero::overwrite);
    std::fill(values.begin(), values.end(), typename Engine::gradient_type(0.01F));
  }
  pass.end();
  engine.step();
}

template <zero::Stage S, zero::Precision P>
measured train(zero::threads_communicator& ranks, std::uint64_t psi) {
  zero::engine<S, P, zero::threads_communicator, zero::adamw> engine(ranks, make_layout(psi),
                                                                     zero::adamw{});
  engine.initialize([](const zero::tensor_info&, std::uint64_t, std::span<float> values) {
    std::fill(values.begin(), values.end(), 1.0F);
  });
  run_step(engine);  // touches every page
  measured result;
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    run_step(engine);
    result.seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  result.ledger = engine.ledger();
  return result;
}

/// Arguments: ranks, Psi. Time of a step: the slowest rank's.
template <zero::Stage S, zero::Precision P>
void training_step(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const auto psi = static_cast<std::uint64_t>(state.range(1));
  std::vector<measured> results;
  for (auto _ : state) {
    results = zero::run_threads(
        ranks, [psi](zero::threads_communicator& threads) { return train<S, P>(threads, psi); });
    double seconds = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      double slowest = 0;
      for (const measured& rank : results) slowest = std::max(slowest, rank.seconds[step]);
      seconds += slowest;
    }
    state.SetIterationTime(seconds / steps);
  }

  std::uint64_t held = 0;
  for (const measured& rank : results) held = std::max(held, rank.ledger.held.total());
  const zero::moved_elements& moved = results.front().ledger.step;
  const auto wire_bytes = static_cast<double>(moved.wire_bytes);
  using counter = benchmark::Counter;
  state.counters["held_bytes"] = static_cast<double>(held);
  state.counters["moved_elements"] = static_cast<double>(moved.total());
  state.counters["moved_psi"] = static_cast<double>(moved.total()) / static_cast<double>(psi);
  state.counters["wire_bytes"] = wire_bytes;
  state.counters["wire_bytes_per_second"] = counter(wire_bytes, counter::kIsIterationInvariantRate);
  state.counters["elements_per_second"] =
      counter(static_cast<double>(psi), counter::kIsIterationInvariantRate);
}

template <zero::Stage S, zero::Precision P>
void add_sweep() {
  const std::string name = "stage" + std::string(S::name) + "/" + std::string(P::name);
  benchmark::RegisterBenchmark(name.c_str(), training_step<S, P>)
      ->ArgNames({"ranks", "psi"})
      ->ArgsProduct({{1, 2, 4}, {1 << 16, 1 << 21}})
      ->UseManualTime()
      ->Iterations(3)
      ->Unit(benchmark::kMillisecond);
}

template <zero::Precision P>
bool add_stages() {
  add_sweep<zero::stage0, P>();
  add_sweep<zero::stage1, P>();
  add_sweep<zero::stage2, P>();
  add_sweep<zero::stage3, P>();
  return true;
}

}  // namespace step_bench
