// SPDX-License-Identifier: Apache-2.0
// timeout: 120
// links: zero_gpu_listener zero_gpu_kernels zero_test_engines
#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/training/device_ranks.hpp"
#include "support/captured_work.hpp"

using namespace zero;
using namespace zero::test;

// A whole step - forward, backward, update - as a CUDA graph. One rank: cuda_threads refuses
// captured collectives, and one rank has none.

namespace {

constexpr std::uint64_t steps = 6;

/// Gradients in device memory at fixed addresses, one array per tensor that trains.
class device_gradients {
 public:
  device_gradients(const model_layout& layout, cuda_values& memory, cuda_queue q)
      : layout_(layout), queue_(q) {
    for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
      arrays_.push_back(memory.allocate(layout.info(tensor_id{t}).elements));
    }
  }

  /// Those of one step.
  void send(std::uint64_t step) {
    for (std::uint32_t t = 0; t < layout_.tensor_count(); ++t) {
      const tensor_info info = layout_.info(tensor_id{t});
      std::vector<float> values(info.elements);
      for (std::uint64_t i = 0; i < values.size(); ++i) {
        values[i] = real_gradient({0, step, 0, info.key, i});
      }
      zero::detail::cuda_try(
          cudaMemcpyAsync(arrays_[t], values.data(), values.size() * sizeof(float),
                          cudaMemcpyHostToDevice, queue_.stream()),
          "cudaMemcpyAsync");
    }
  }
  range<const float, partial, cuda_space> of(tensor_id tensor) const {
    return {arrays_[tensor.value], layout_.info(tensor).elements};
  }

 private:
  const model_layout& layout_;
  cuda_queue queue_;
  std::vector<float*> arrays_;
};

/// Everything of a step but its arguments.
template <class Engine>
void enqueue_step(Engine& engine, const device_gradients& gradients, cuda_queue q) {
  const model_layout& layout = engine.layout();
  const auto uses = layout.uses();
  auto pass = engine.train();
  for (const unit_id unit : uses) pass.forward(unit, q).finish();
  for (auto unit = uses.rbegin(); unit != uses.rend(); ++unit) {
    auto scope = pass.backward(*unit, q);
    for (const tensor_id tensor : layout.tensors(*unit)) {
      if (layout.info(tensor).trainable) scope.add(tensor, gradients.of(tensor));
    }
  }
  pass.end();
  engine.step_prepared(q);
}

step_arguments arguments_of(std::uint64_t step) {
  return {.lr = 0.01 / static_cast<double>(1 + step), .clip = 0.5};
}

/// Trains with the first step enqueued as usual and the others as launches of one graph, or all of
/// them as usual.
template <class S, class P>
device_run trained(bool is_captured) {
  const model_layout layout = device_layout();
  device_run run;
  run.states.resize(1);
  run.errors = device_ranks::run(1, [&](cuda_threads_communicator& comm, cuda_queue q) {
    cuda_typed_engine<engine<S, P, cuda_threads_communicator, adamw>> adapter(
        comm, layout, adamw{.weight_decay = 0.01}, test_settings(), q);
    adapter.initialize(initial_values);
    auto& engine = adapter.typed();
    device_gradients gradients(layout, adapter.values(), q);
    const auto enqueue = [&] { enqueue_step(engine, gradients, q); };
    std::vector<step_report> reports;
    const auto prepare = [&](std::uint64_t step) {
      gradients.send(step);
      engine.prepare_step(arguments_of(step), q);
    };
    prepare(0);
    enqueue();
    reports.push_back(engine.latest_report(q));
    if (is_captured) prepare(1);
    const auto graph = is_captured ? std::make_unique<captured_work>(q, enqueue)
                                   : std::unique_ptr<captured_work>();
    for (std::uint64_t step = 1; step < steps; ++step) {
      prepare(step);
      if (is_captured) {
        graph->launch();
      } else {
        enqueue();
      }
      reports.push_back(engine.latest_report(q));
    }
    if (engine.steps() != steps) throw error("not all steps were taken");
    run.states.front() = state_of(adapter, reports);
  });
  return run;
}

template <class S, class P>
std::string difference_of_graph() {
  const device_run expected = trained<S, P>(false);
  if (!expected.errors.front().text.empty()) return "eagerly: " + expected.errors.front().text;
  return trained<S, P>(true).difference_from(expected.states.front());
}

}  // namespace

TEST_CASE("gpu graph: a captured step, launched again and again, is the step") {
  CHECK(difference_of_graph<stage3, bf16_mixed>() == "");
#if defined(ZERO_TEST_GPU_ALL)
  CHECK(difference_of_graph<stage0, bf16_mixed>() == "");
  CHECK(difference_of_graph<stage1, bf16_mixed>() == "");
  CHECK(difference_of_graph<stage2, bf16_mixed>() == "");
  CHECK(difference_of_graph<stage3_keep_gathered, bf16_mixed>() == "");
  CHECK(difference_of_graph<stage2, fp16_mixed>() == "");
#endif
}
