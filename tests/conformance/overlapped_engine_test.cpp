// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 120
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/overlapped.hpp>
#include <zero/backends/threads.hpp>
#include <zero/engine.hpp>
#include <zero/optimizers/adamw.hpp>
#include <zero/precision.hpp>
#include <zero/stage.hpp>

#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;

// The engine starts collectives and waits for them only where it needs their results; here they run
// on another thread meanwhile, and not a bit may differ.

namespace {

/// Sizes that no number of ranks divides, a tied tensor and a frozen one.
model_layout small_layout() {
  model_layout layout;
  const unit_id embedding = layout.add_unit("embedding");
  const tensor_id table = layout.add_tensor(embedding, "table", {37, 5}, no_decay);
  for (std::uint64_t b = 0; b < 3; ++b) {
    const std::string name = "block" + std::to_string(b);
    const unit_id block = layout.add_unit(name);
    layout.add_tensor(block, name + ".weight", {7 + b, 11 + 2 * b});
    layout.add_tensor(block, name + ".fixed", {3 + b}, decay, frozen);
  }
  const unit_id head = layout.add_unit("head");
  layout.add_tensor(head, "head.table", {37, 5}, no_decay, {.tied_to = table});
  return layout;
}

float value_at(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t z = a * 0x9E3779B97F4A7C15U + b * 0xD1B54A32D192ED03U + c * 0x2545F4914F6CDD1DU;
  z = (z ^ (z >> 32U)) * 0xD6E8FEB86659FD93U;
  return static_cast<float>(static_cast<double>(z >> 11U) * 0x1p-52 - 1.0);
}

template <class Pass>
void run_pass(Pass pass, const model_layout& layout, int rank, std::uint64_t step) {
  const auto uses = layout.uses();
  for (const unit_id unit : uses) pass.forward(unit).finish();
  for (auto unit = uses.rbegin(); unit != uses.rend(); ++unit) {
    auto scope = pass.backward(*unit);
    for (const tensor_id tensor : layout.tensors(*unit)) {
      const tensor_info info = layout.info(tensor);
      if (!info.trainable) continue;
      std::vector<float> gradient(info.elements);
      for (std::uint64_t i = 0; i < info.elements; ++i) {
        gradient[i] = value_at(info.key + static_cast<std::uint64_t>(rank), step, i);
      }
      scope.add(tensor, gradient);
    }
    std::move(scope).finish();
  }
  pass.end();
}

/// What three steps make of the parameters, and the norms of their gradients.
template <class Stage>
std::vector<double> trained(any_communicator& comm) {
  const model_layout layout = small_layout();
  engine<Stage, fp32, any_communicator, adamw> engine(comm, layout, adamw{}, engine_options{});
  engine.initialize([](const tensor_info& tensor, std::uint64_t first, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(tensor.key, 7, first + i);
  });
  std::vector<double> result;
  for (std::uint64_t step = 0; step < 3; ++step) {
    run_pass(engine.train(), layout, comm.rank(), step);
    result.push_back(engine.step({.lr = 0.01, .clip = 1.0}).get().grad_norm);
  }
  for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
    std::vector<float> values(layout.info(tensor_id{t}).elements);
    engine.export_tensor(tensor_id{t}, values);
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

std::vector<double> trained_at(int stage, any_communicator& comm) {
  switch (stage) {
    case 0:
      return trained<stage0>(comm);
    case 1:
      return trained<stage1>(comm);
    case 2:
      return trained<stage2>(comm);
    default:
      return trained<stage3>(comm);
  }
}

}  // namespace

TEST_CASE("stages 0 to 3 give the same bits over overlapped threads as over threads") {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto plain = run_threads(ranks, long_timeout, [](threads_communicator& inner) {
      any_communicator comm(inner);
      return trained_at(1, comm);
    });
    for (int stage = 0; stage <= 3; ++stage) {
      CAPTURE(ranks, stage);
      const auto results = run_threads(ranks, long_timeout, [&](threads_communicator& inner) {
        overlapped worker(inner);
        any_communicator comm(worker);
        return trained_at(stage, comm);
      });
      CHECK(plain[0].size() > 500);
      for (const auto& result : results) CHECK((result == plain[0]));
    }
  }
}
