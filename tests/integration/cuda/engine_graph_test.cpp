// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 300
// links: zero_simulated_device zero_test_engines
#include <catch2/catch.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "integration/cuda/cuda_training.hpp"
#include "integration/cuda/nccl_training.hpp"
#include "integration/cuda/small_layout.hpp"
#include "support/captured_work.hpp"

using namespace zero;
using namespace zero::test;

// Steps that a CUDA graph captured once and runs often, as docs/gpu.md describes them, end with the
// bits of steps that were enqueued one by one. Gradients depend on the step, whose number lies in
// device memory, and on the parameters, so that no two launches are alike.

namespace {

constexpr std::uint64_t launches = 3;

/// Counts the steps of a rank.
struct count_body {
  std::uint64_t* step;
  void run(std::uint64_t thread, std::uint64_t /*threads*/) const {
    if (thread == 0) ++*step;
  }
};

struct gradient_body {
  const float* parameters;
  float* gradients;
  std::uint64_t count;
  const std::uint64_t* step;
  std::uint64_t key;
  int rank;
  void run(std::uint64_t thread, std::uint64_t threads) const {
    for (std::uint64_t i = thread; i < count; i += threads) {
      gradients[i] = parameters[i] + integer_gradient({rank, *step, 0, key, i});
    }
  }
};

step_arguments arguments_of(std::uint64_t step) {
  return {.lr = 0.01 / static_cast<double>(step + 1), .clip = 0.5};
}

/// A training whose passes allocate nothing, so that they can be captured.
template <class Engine>
class graph_training {
 public:
  graph_training(cuda_typed_engine<Engine>& adapter, int rank, cuda_queue q)
      : engine_(adapter.typed()), rank_(rank), queue_(q) {
    step_ = reinterpret_cast<std::uint64_t*>(adapter.values().allocate(2));
    zero::detail::cuda_try(cudaMemsetAsync(step_, 0, sizeof(*step_), q.stream()),
                           "cudaMemsetAsync");
    for (std::uint32_t t = 0; t < engine_.layout().tensor_count(); ++t) {
      const std::uint64_t elements = engine_.layout().info(tensor_id{t}).elements;
      parameters_.push_back(adapter.values().allocate(elements));
      gradients_.push_back(adapter.values().allocate(elements));
    }
  }

  /// The first step is taken as it is, the others by launches or one by one.
  std::vector<step_report> run(bool is_captured) {
    std::vector<step_report> reports;
    run_pass();
    reports.push_back(engine_.step(arguments_of(0), queue_).get());
    if (is_captured) {
      run_captured(reports);
    } else {
      for (std::uint64_t step = 1; step <= launches; ++step) {
        run_pass();
        reports.push_back(engine_.step(arguments_of(step), queue_).get());
      }
    }
    return reports;
  }

 private:
  void run_captured(std::vector<step_report>& reports) {
    engine_.prepare_step(arguments_of(1), queue_);
    captured_work graph(queue_, [&] {
      run_pass();
      engine_.step_prepared(queue_);
    });
    for (std::uint64_t step = 1; step <= launches; ++step) {
      if (step > 1) engine_.prepare_step(arguments_of(step), queue_);
      graph.launch();
      reports.push_back(engine_.latest_report(queue_));
    }
  }

  void run_pass() {
    const model_layout& layout = engine_.layout();
    launch_simulated("count", count_body{step_}, queue_.stream());
    auto pass = engine_.train();
    const auto uses = layout.uses();
    for (const unit_id unit : uses) {
      auto scope = pass.forward(unit, queue_);
      for (const tensor_id tensor : layout.tensors(unit)) {
        scope.read(tensor, {parameters_[tensor.value], layout.info(tensor).elements});
      }
    }
    for (auto unit = uses.rbegin(); unit != uses.rend(); ++unit) {
      auto scope = pass.backward(*unit, queue_);
      for (const tensor_id tensor : layout.tensors(*unit)) {
        const tensor_info info = layout.info(tensor);
        if (!info.trainable) continue;
        float* const values = gradients_[tensor.value];
        launch_simulated(
            "gradient",
            gradient_body{parameters_[tensor.value], values, info.elements, step_, info.key, rank_},
            queue_.stream());
        scope.add(tensor, range<const float, partial, cuda_space>(values, info.elements));
      }
    }
    pass.end();
  }

  Engine& engine_;
  int rank_;
  cuda_queue queue_;
  std::uint64_t* step_ = nullptr;
  std::vector<float*> parameters_;  // as forward has read them
  std::vector<float*> gradients_;
};

template <class Ranks, class S>
device_run train_by_graph(int ranks, bool is_captured) {
  using communicator = typename Ranks::communicator;
  using engine_type = engine<S, bf16_mixed, communicator, adamw>;
  device_run run;
  run.states.resize(static_cast<std::size_t>(ranks));
  run.errors = Ranks::run(ranks, [&](communicator& comm, cuda_queue q) {
    cuda_typed_engine<engine_type> engine(comm, small_layout(23), adamw{}, test_settings(), q);
    engine.initialize(initial_values);
    graph_training<engine_type> training(engine, comm.rank(), q);
    const auto reports = training.run(is_captured);
    run.states[static_cast<std::size_t>(comm.rank())] = state_of(engine, reports);
  });
  return run;
}

/// What differs between captured and uncaptured trainings; empty for nothing.
template <class Ranks, class S>
std::string difference(stage_kind stage, int ranks, std::uint64_t seeds) {
  trained_state expected;
  for (std::uint64_t seed = 0; seed <= seeds; ++seed) {
    const bool is_captured = seed > 0;
    const simulated_device device(machine_of(seed, Ranks::devices_for(ranks)));
    const device_run run = train_by_graph<Ranks, S>(ranks, is_captured);
    if (!is_captured) expected = run.states.front();
    std::string text = run.difference_from(expected);
    for (const std::string& finding : device.findings()) text += "; found " + finding;
    for (const auto& [maker, count] : device.alive()) {
      text += "; " + std::to_string(count) + " of " + maker + " left";
    }
    if (expected.norms.size() != launches + 1) text += "; not all steps have a norm";
    if (text.empty()) continue;
    return "stage " + std::string(name_of(stage)) + ", " + std::to_string(ranks) + " ranks, seed " +
           std::to_string(seed) + ": " + text + "\n";
  }
  return "";
}

/// The stages that differ.
template <class Ranks>
std::string differences(int ranks) {
  const std::uint64_t seeds = full_counts() ? 100 : (is_sanitized ? 2 : 8);
  std::string texts;
  const auto compare = [&]<class S>(stage_kind stage, S) {
    texts += difference<Ranks, S>(stage, ranks, seeds);
  };
  compare(stage_kind::stage0, stage0{});
  compare(stage_kind::stage1, stage1{});
  compare(stage_kind::stage2, stage2{});
  compare(stage_kind::stage3, stage3{});
  compare(stage_kind::stage3_keep_gathered, stage3_keep_gathered{});
  return texts;
}

}  // namespace

TEST_CASE("captured steps end with the bits of others: cuda_threads, one rank") {
  CHECK(differences<cuda_threads_ranks>(1) == "");
}

TEST_CASE("captured steps end with the bits of others: NCCL") {
  for (const int ranks : {1, 2, 3}) CHECK(differences<nccl_ranks>(ranks) == "");
}

TEST_CASE("ranks of cuda_threads cannot be captured together") {
  const simulated_device device(machine_of(5));
  const device_run run = train_by_graph<cuda_threads_ranks, stage2>(2, true);
  for (const rank_error& error : run.errors) {
    INFO(error.text);
    CHECK((error.kind == outcome::usage || error.kind == outcome::aborted));
  }
  CHECK(
      (run.errors[0].says("captured into a graph") || run.errors[1].says("captured into a graph")));
}
