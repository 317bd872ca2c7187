// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "integration/cuda/cuda_training.hpp"

// Every wait that an engine puts into the user's stream in a step is there for a reason: without
// it, under some schedule of the device, training goes wrong. The waits in the communicator's own
// stream hold for any program, not for this one alone; tests/unit/backends/cuda_threads_waits_test.cpp
// drops them.

namespace zero::test {

inline constexpr std::uint64_t waiting_steps = 2;

/// Four units, so that all places of the shared regions change hands; each rank owns a part of
/// each.
inline model_layout waiting_layout() {
  model_layout layout({.alignment_bytes = 256});
  for (std::uint32_t u = 0; u < 4; ++u) {
    layout.add_tensor(layout.add_unit("unit" + std::to_string(u)), "t" + std::to_string(u),
                      {600 + 10 * u});
  }
  return layout;
}

/// The waits that one rank's steps put into the user's stream: those of the engine.
struct stream_waits {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

/// Which wait of which rank does nothing; counted from the first step.
struct dropped_wait {
  int rank = -1;
  std::uint64_t number = 0;
};

/// Trains two steps with gradients made of what the parameters were in forward and in backward, so
/// that reading too early, too late or from a place that was taken shows in the result.
template <class Engine>
std::vector<step_report> train_on_parameters(cuda_typed_engine<Engine>& adapter, cuda_queue q,
                                             int rank) {
  Engine& engine = adapter.typed();
  const model_layout& layout = engine.layout();
  const auto elements = [&](std::uint32_t u) { return layout.info(tensor_id{u}).elements; };
  std::vector<typename Engine::ticket> tickets;
  for (std::uint64_t step = 0; step < waiting_steps; ++step) {
    auto pass = engine.train();
    std::vector<float*> seen;
    for (std::uint32_t u = 0; u < layout.unit_count(); ++u) {
      auto scope = pass.forward(unit_id{u}, q);
      seen.push_back(adapter.values().allocate(elements(u)));
      scope.read(tensor_id{u}, range<float, full, cuda_space>(seen[u], elements(u)));
    }
    for (std::uint32_t u = layout.unit_count(); u-- > 0;) {
      auto scope = pass.backward(unit_id{u}, q);
      float* const now = adapter.values().allocate(elements(u));
      scope.read(tensor_id{u}, range<float, full, cuda_space>(now, elements(u)));
      const std::vector<float> own(elements(u), 1.0F + static_cast<float>(rank));
      for (const float* part : {static_cast<const float*>(seen[u]), static_cast<const float*>(now),
                                adapter.values().send(own)}) {
        scope.add(tensor_id{u}, range<const float, partial, cuda_space>(part, elements(u)));
      }
    }
    pass.end();
    tickets.push_back(engine.step({.lr = 0.01}, q));
  }
  std::vector<step_report> reports;
  for (const auto& ticket : tickets) reports.push_back(ticket.get());
  return reports;
}

/// Trains two steps.
template <class Ranks, class S>
device_run run_without(int ranks, simulated_device& device, dropped_wait dropped,
                       std::vector<stream_waits>& waits) {
  const model_layout layout = waiting_layout();
  device_run run;
  run.states.resize(static_cast<std::size_t>(ranks));
  waits.resize(static_cast<std::size_t>(ranks));
  using communicator = typename Ranks::communicator;
  run.errors = Ranks::run(ranks, [&](communicator& comm, cuda_queue q) {
    using engine_type = engine<S, bf16_mixed, communicator, adamw>;
    cuda_typed_engine<engine_type> engine(comm, layout, adamw{}, test_settings(), q);
    engine.initialize(initial_values);
    const std::uint64_t first = device.waits_in(q.stream());
    if (comm.rank() == dropped.rank) device.drop_wait_in(q.stream(), first + dropped.number);
    const auto reports = train_on_parameters(engine, q, comm.rank());
    waits[static_cast<std::size_t>(comm.rank())] = {first, device.waits_in(q.stream())};
    run.states[static_cast<std::size_t>(comm.rank())] = state_of(engine, reports);
  });
  return run;
}

/// Waits of one step that change nothing, counted from 0.
using needless_waits = std::set<std::uint64_t> (*)(stage_kind);

/// Drops each wait; returns the lines of those whose effect is not the expected one.
template <class Ranks, class S>
std::string unexpected_effects(stage_kind stage, int ranks, needless_waits needless, int& dropped) {
  std::vector<stream_waits> waits;
  std::vector<stream_waits> ignored;
  trained_state expected;
  {
    simulated_device device(machine_of(0, Ranks::devices_for(ranks)));
    const device_run run = run_without<Ranks, S>(ranks, device, {}, waits);
    expected = run.states.front();
    const std::string difference = run.difference_from(expected);
    if (!difference.empty()) return difference;
  }
  std::string unexpected;
  for (int rank = 0; rank < ranks; ++rank) {
    const stream_waits all = waits[static_cast<std::size_t>(rank)];
    const std::uint64_t count = all.last - all.first;
    for (std::uint64_t number = 0; number < count; ++number) {
      ++dropped;
      const bool is_needless = needless(stage).contains(number % (count / waiting_steps));
      const std::uint64_t seeds = is_needless ? 15 : 60;
      bool goes_wrong = false;
      for (std::uint64_t seed = 0; seed < seeds && !goes_wrong; ++seed) {
        simulated_device device(machine_of(seed, Ranks::devices_for(ranks)));
        const device_run run = run_without<Ranks, S>(ranks, device, {rank, number}, ignored);
        goes_wrong = !run.difference_from(expected).empty() || !device.findings().empty();
      }
      if (goes_wrong != is_needless) continue;
      unexpected += std::to_string(ranks) + " ranks, rank " + std::to_string(rank) + ", wait " +
                    std::to_string(number) + " of " + std::to_string(count) +
                    (goes_wrong ? " matters\n" : " does not matter\n");
    }
  }
  return unexpected;
}

template <class Ranks, class S>
void require_waits_of(stage_kind stage, int most_ranks, needless_waits needless) {
  int dropped = 0;
  for (int ranks = 2; ranks <= most_ranks; ++ranks) {
    CHECK(unexpected_effects<Ranks, S>(stage, ranks, needless, dropped) == "");
  }
  WARN(name_of(stage) << ": " << dropped << " waits dropped");
}

}  // namespace zero::test
