// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <zero/cuda.hpp>
#include <zero/ledger.hpp>
#include <zero/zero.hpp>

#include "network.hpp"

namespace cuda_example {

struct training_settings {
  std::string stage = "2";  ///< "1", "2" or "3"
  std::uint64_t ranks = 2;  ///< threads of this process; a launcher's ranks come from there
  std::uint64_t steps = 200;
  double learning_rate = 2e-3;
  network_sizes sizes;
  std::vector<std::uint8_t> text;  ///< longer than a context

  /// Rank 0's progress.
  std::function<void(std::uint64_t step, double loss, double grad_norm)> report;
};

/// What a rank has seen.
struct training_result {
  double first_loss = 0;  ///< nats per byte, the mean over this rank's rows at the first step
  double last_loss = 0;
  zero::held_bytes held;
  std::uint64_t parameters_hash = 0;  ///< the same on every rank
};

/// The rows of one rank and step: places in the text by a counter, so that no two ranks draw alike.
inline void draw_rows(const training_settings& settings, std::uint64_t step, std::uint64_t rank,
                      std::span<std::uint8_t> contexts, std::span<std::uint8_t> targets) {
  const std::uint64_t context = settings.sizes.context;
  const auto places = static_cast<double>(settings.text.size() - context);
  for (std::uint64_t row = 0; row < targets.size(); ++row) {
    const double draw = network::draw(step, rank * targets.size() + row);
    const auto place = static_cast<std::uint64_t>(draw * places);
    for (std::uint64_t k = 0; k < context; ++k) {
      contexts[row * context + k] = settings.text[place + k];
    }
    targets[row] = settings.text[place + context];
  }
}

/// Trains on one rank; the device of the calling thread is the rank's.
///
/// The training loop of a program in C style: flat buffers, functions that enqueue kernels, one
/// stream. Only the lines with `engine` and `pass` know that there are several ranks, and the stage
/// is a type. Nothing in the loop waits for the device but the reports.
///
/// Collective: every rank of `ranks`. Throws: zero::error.
template <class Stage, class C>
training_result train(C& ranks, const training_settings& settings) {
  const network model(settings.sizes);
  const zero::unique_cuda_stream stream;
  activations memory(settings.sizes);

  zero::engine<Stage, zero::bf16_mixed, C, zero::adamw> engine(
      ranks, model.layout(), zero::adamw{.weight_decay = 0.01}, {}, stream);
  engine.initialize(network::initial_values, stream);

  std::vector<std::uint8_t> contexts(settings.sizes.batch * settings.sizes.context);
  std::vector<std::uint8_t> targets(settings.sizes.batch);
  const auto upload = [&](std::uint8_t* there, const std::vector<std::uint8_t>& here) {
    // Pageable memory is staged before the call returns, so the next step may overwrite it.
    zero::detail::cuda_try(
        cudaMemcpyAsync(there, here.data(), here.size(), cudaMemcpyHostToDevice, stream.get()),
        "cudaMemcpyAsync");
  };

  training_result result;
  const auto units = model.layout().uses();
  const std::uint64_t interval = settings.steps < 10 ? 1 : settings.steps / 10;
  for (std::uint64_t step = 0; step < settings.steps; ++step) {
    draw_rows(settings, step, static_cast<std::uint64_t>(ranks.rank()), contexts, targets);
    upload(memory.contexts, contexts);
    upload(memory.targets, targets);

    auto pass = engine.train();
    for (auto unit = units.begin(); unit != units.end(); ++unit) {
      const auto opened = pass.forward(*unit, stream);
      model.forward(*unit, opened, memory, stream.get());
    }
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      const auto opened = pass.backward(*unit, stream);
      model.backward(*unit, opened, memory, stream.get());
    }
    pass.end();
    const auto ticket = engine.step({.lr = settings.learning_rate, .clip = 1.0}, stream);

    if (step % interval != 0 && step + 1 != settings.steps) continue;
    std::vector<float> losses(settings.sizes.batch);
    zero::detail::cuda_try(cudaMemcpyAsync(losses.data(), memory.losses, losses.size() * 4,
                                           cudaMemcpyDeviceToHost, stream.get()),
                           "cudaMemcpyAsync");
    const double norm = ticket.get().grad_norm;  // waits until the step is done
    result.last_loss = 0;
    for (const float loss : losses) result.last_loss += loss / static_cast<double>(losses.size());
    if (step == 0) result.first_loss = result.last_loss;
    if (settings.report && ranks.rank() == 0) settings.report(step, result.last_loss, norm);
  }

  result.held = engine.ledger().held;
  for (std::uint32_t t = 0; t < model.layout().tensor_count(); ++t) {
    std::vector<float> values(model.layout().info({t}).elements);
    engine.export_tensor({t}, values, stream);
    for (const float value : values) {
      // FNV-1a over the bits.
      result.parameters_hash ^= std::bit_cast<std::uint32_t>(value);
      result.parameters_hash *= 0x100000001B3U;
    }
  }
  stream.synchronize();
  return result;
}

/// Ranks as threads that share this process's devices. Rank 0's result. Throws: zero::error.
training_result train_on_threads(const training_settings& settings);

/// This process as a rank over NCCL, as a launcher has said (zero-run, torchrun, srun, mpirun).
/// Its result. Throws: zero::error.
training_result train_over_nccl(const training_settings& settings);

/// Calls `train_with(stage)` with the stage that was asked for.
template <class Function>
training_result with_stage(const training_settings& settings, Function train_with) {
  if (settings.stage == "1") return train_with(zero::stage1{});
  if (settings.stage == "2") return train_with(zero::stage2{});
  if (settings.stage == "3") return train_with(zero::stage3{});
  throw zero::usage_error("--stage is 1, 2 or 3, not " + settings.stage);
}

}  // namespace cuda_example
