// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/backends/cuda_threads.hpp>
#include <zero/backends/threads.hpp>
#include <zero/cuda.hpp>

#include "support/cuda_typed_engine.hpp"
#include "support/rank_runner.hpp"
#include "support/run_rank.hpp"
#include "support/training.hpp"

// Training on devices, real or simulated, for comparison with training over threads.

namespace zero::test {

/// Sanitizers make every run several times as long, and need fewer of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
inline constexpr bool is_sanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool is_sanitized = false;
#endif

/// What every rank of a run on devices ended with.
struct device_run {
  std::vector<trained_state> states;
  std::vector<rank_error> errors;

  /// Empty where every rank has the expected state, else what is wrong.
  std::string difference_from(const trained_state& expected) const {
    for (std::size_t rank = 0; rank < states.size(); ++rank) {
      const std::string where = "rank " + std::to_string(rank) + ": ";
      if (!errors[rank].text.empty()) return where + errors[rank].text;
      if (states[rank].parameter_bits != expected.parameter_bits) return where + "parameters";
      if (states[rank].values != expected.values) return where + "values";
      if (states[rank].norms != expected.norms) return where + "norms";
    }
    return "";
  }
};

/// Calls `function(communicator, queue)` on every rank of a world on device 0, each in a thread
/// that has called `begin(rank)` first; how each ended.
template <class Begin, class Function>
std::vector<rank_error> run_cuda_threads(int ranks, std::chrono::milliseconds timeout, Begin begin,
                                         Function function) {
  const cuda_threads_world world(ranks, {.timeout = timeout, .devices = {0}});
  return outcomes(ranks, {.timeout = std::chrono::hours(1)}, [&](threads_communicator& thread) {
    begin(thread.rank());
    cuda_threads_communicator comm(world, thread.rank());
    const auto call = [&](cuda_threads_communicator& c) {
      unique_cuda_stream stream;
      function(c, cuda_queue(stream));
      stream.synchronize();
    };
    return run_rank(comm, call);
  });
}

/// Trains on the device; nothing waits for it before the end.
template <class Ranks, class S, class P>
device_run train_on(int ranks, const model_layout& layout, const training_options& options,
                    const engine_options& settings = test_settings()) {
  using communicator = typename Ranks::communicator;
  device_run run;
  run.states.resize(static_cast<std::size_t>(ranks));
  run.errors = Ranks::run(ranks, [&](communicator& comm, cuda_queue q) {
    cuda_typed_engine<engine<S, P, communicator, adamw>> engine(
        comm, layout, adamw{.weight_decay = 0.01}, settings, q);
    engine.initialize(initial_values);
    const auto reports = engine.run_steps_ahead(comm.rank(), options);
    run.states[static_cast<std::size_t>(comm.rank())] = state_of(engine, reports);
  });
  return run;
}

/// Three units, a tied head, a frozen tensor, groups; sizes that no N divides, and shards longer
/// than a chunk of the norm.
inline model_layout device_layout() {
  model_layout layout({.alignment_bytes = 256});
  const group_id slow = layout.add_group({.lr_multiplier = 0.5, .weight_decay = 0.3});
  const unit_id embedding = layout.add_unit("embedding");
  const tensor_id table = layout.add_tensor(embedding, "table", {37, 5}, no_decay);
  const unit_id block = layout.add_unit("block");
  layout.add_tensor(block, "block.weight", {61, is_sanitized ? 37 : 89}, slow);
  layout.add_tensor(block, "block.fixed", {67}, decay, frozen);
  layout.add_tensor(block, "block.bias", {61}, no_decay);
  const unit_id head = layout.add_unit("head");
  layout.add_tensor(head, "head.table", {37, 5}, no_decay, {.tied_to = table});
  layout.add_tensor(head, "head.bias", {37}, no_decay);
  return layout;
}

}  // namespace zero::test
