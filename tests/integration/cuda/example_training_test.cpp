// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 120
// links: zero_simulated_device zero_test_engines cuda_example
// The example of examples/cuda on the simulated device: its layers, and its training loop.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "integration/cuda/cuda_training.hpp"
#include "layers_impl.hpp"
#include "train.hpp"

using namespace zero;
using namespace zero::test;

namespace {

/// A function of the index as the body of a kernel.
template <class Function>
struct for_each_index {
  std::uint64_t count;
  Function function;
  void run(std::uint64_t thread, std::uint64_t threads) const {
    for (std::uint64_t i = thread; i < count; i += threads) function(i);
  }
};

}  // namespace

namespace cuda_example {

template <class Function>
void parallel_for(std::uint64_t count, const Function& function, cudaStream_t stream) {
  launch_simulated("a kernel of the example", for_each_index<Function>{count, function}, stream);
}

}  // namespace cuda_example

namespace {

namespace ex = cuda_example;

/// Parameters and gradients in fp32 without an engine, as a scope gives them to the network.
class plain_scope {
 public:
  using parameter_type = float;

  explicit plain_scope(const model_layout& layout) {
    for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
      const tensor_info info = layout.info({t});
      parameters_.emplace_back(info.elements);
      gradients_.emplace_back(info.elements, std::nanf(""));
      ex::network::initial_values(info, 0, parameters_.back());
      // Larger than a training begins with, so that no gradient is lost in the noise of fp32.
      for (float& value : parameters_.back()) value *= 3;
    }
  }

  range<const float, full, cuda_space> parameters(tensor_id tensor) const {
    return {parameters_[tensor.value].data(), parameters_[tensor.value].size()};
  }
  range<float, partial, cuda_space> gradients(tensor_id tensor, overwrite_t) const {
    return {gradients_[tensor.value].data(), gradients_[tensor.value].size()};
  }
  std::vector<float>& values(tensor_id tensor) { return parameters_[tensor.value]; }
  const std::vector<float>& written(tensor_id tensor) const { return gradients_[tensor.value]; }

 private:
  std::vector<std::vector<float>> parameters_;
  mutable std::vector<std::vector<float>> gradients_;
};

std::vector<std::uint8_t> some_text() {
  std::vector<std::uint8_t> text;
  for (int line = 0; line < 40; ++line) {
    for (const char c : std::string("all stages end with the same bits; ")) {
      text.push_back(static_cast<std::uint8_t>(c));
    }
  }
  return text;
}

}  // namespace

TEST_CASE("the gradients of the example's network are the slopes of its loss") {
  const simulated_device device(machine_of(1));
  const ex::network_sizes sizes{
      .context = 3, .embedding = 4, .width = 5, .hidden = 7, .blocks = 2, .batch = 4};
  const ex::network model(sizes);
  const unique_cuda_stream stream;
  ex::activations memory(sizes);
  plain_scope scope(model.layout());
  ex::training_settings settings{.sizes = sizes, .text = some_text(), .report = {}};
  // The simulated device's memory is the host's.
  ex::draw_rows(settings, 0, 0, {memory.contexts, sizes.batch * sizes.context},
                {memory.targets, sizes.batch});

  const auto units = model.layout().uses();
  const auto loss = [&] {
    for (const unit_id unit : units) model.forward(unit, scope, memory, stream.get());
    stream.synchronize();
    double sum = 0;
    for (std::uint64_t row = 0; row < sizes.batch; ++row) sum += memory.losses[row];
    return sum / static_cast<double>(sizes.batch);
  };
  CHECK(loss() > 3);
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    model.backward(*unit, scope, memory, stream.get());
  }
  stream.synchronize();

  std::uint64_t compared = 0;
  for (std::uint32_t t = 0; t < model.layout().tensor_count(); ++t) {
    const tensor_info info = model.layout().info({t});
    const std::vector<float> gradients = scope.written({t});
    for (std::uint64_t i = 0; i < info.elements; i += 1 + info.elements / 40) {
      // The five-point formula: what is left out is of fifth order, which allows for a step that is
      // large against the rounding of the loss.
      constexpr float h = 1e-2F;
      const float value = scope.values({t})[i];
      const auto loss_at = [&](float steps) {
        scope.values({t})[i] = value + steps * h;
        return loss();
      };
      const double slope =
          (8 * (loss_at(1) - loss_at(-1)) - (loss_at(2) - loss_at(-2))) / (12 * double{h});
      scope.values({t})[i] = value;
      INFO(std::string(info.name) << " element " << i << ": gradient " << gradients[i] << ", slope "
                                  << slope);
      CHECK(std::abs(static_cast<double>(gradients[i]) - slope) < 4e-4 + 0.01 * std::abs(slope));
      compared += std::abs(slope) > 2e-3 ? 1U : 0U;
    }
  }
  CHECK(compared > 100);  // most of them are no zeros
}

TEST_CASE("the example learns, and ends with the same bits at every stage") {
  ex::training_settings settings;
  settings.steps = is_sanitized ? 4 : 30;
  settings.learning_rate = 5e-3;
  settings.sizes = {
      .context = 3, .embedding = 4, .width = 16, .hidden = 24, .blocks = 2, .batch = 8};
  settings.text = some_text();
  std::vector<ex::training_result> results;
  const auto run = [&]<class S>(S, std::uint64_t seed) {
    const simulated_device device(machine_of(seed));
    std::vector<ex::training_result> ranks(2);
    const auto errors = on_cuda_threads(2, [&](cuda_threads_communicator& comm, cuda_queue) {
      ranks[static_cast<std::size_t>(comm.rank())] = ex::train<S>(comm, settings);
    });
    for (const rank_error& error : errors) CHECK(error.text == "");
    CHECK(device.findings() == std::vector<std::string>{});
    results.insert(results.end(), ranks.begin(), ranks.end());
  };
  run(stage1{}, 1);
  run(stage2{}, 2);
  run(stage3{}, 3);
  for (const ex::training_result& result : results) {
    CHECK(result.parameters_hash == results[0].parameters_hash);
    CHECK(result.last_loss < (is_sanitized ? 1.0 : 0.75) * result.first_loss);
  }
  // Each stage holds less: gradients from 2 on, parameters at 3.
  CHECK(results[2].held.gradients < results[0].held.gradients);
  CHECK(results[4].held.parameters < results[2].held.parameters);
}
