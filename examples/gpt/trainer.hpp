// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <zero/engine.hpp>
#include <zero/memory.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>
#include <zero/stage.hpp>

#include "computation.hpp"
#include "progress.hpp"
#include "rank_run.hpp"
#include "sampling.hpp"
#include "xxh64.hpp"

namespace gpt {

/// The optimizer's settings for this model.
template <class Optimizer>
Optimizer optimizer_for_gpt() {
  Optimizer optimizer;
  if constexpr (requires { optimizer.beta2; }) {
    optimizer.beta2 = 0.99;  // runs are short: 0.999 would still remember the first step
  }
  if constexpr (std::is_same_v<Optimizer, zero::adamw> || std::is_same_v<Optimizer, zero::lion>) {
    optimizer.weight_decay = 0.1;
  }
  return optimizer;
}

/// The training loop of one rank, the same for every stage: a unit is opened, computed with, and
/// closed. What that moves and what is held while it is open is the engine's business.
template <class Engine>
class trainer {
 public:
  using clock = std::chrono::steady_clock;

  trainer(Engine& engine, const training_job& job)
      : engine_(engine),
        job_(job),
        computation_(job.settings.model, sequences_per_rank(job.settings)),
        parameters_(job.model.layout()),
        gradients_(job.model.layout()) {}

  /// One step on the global batch; returns the mean loss over this rank's sequences.
  double step(std::uint64_t number) {
    const std::uint64_t micro_batches = job_.settings.micro_batches;
    double loss = 0;
    for (std::uint64_t m = 0; m < micro_batches; ++m) {
      loss += micro_batch(number, {m, micro_batches}) / static_cast<double>(micro_batches);
    }
    engine_.step({.lr = learning_rate(job_.settings, number), .clip = job_.settings.clip});
    return loss;
  }

  /// Nats that this rank's part of the held-out text costs.
  double heldout_nats() {
    heldout_score score(job_.text.heldout, job_.settings.model.context, engine_.rank(),
                        engine_.ranks(), computation_.sequences());
    for (std::uint64_t i = 0; i < score.passes(); ++i) {
      score.load(i, computation_);
      auto pass = engine_.evaluate();
      forward(pass, computation_);
      pass.end();
      score.add(i, computation_);
    }
    return score.sum();
  }

  /// Text that the model writes. Every rank computes all of it: at stage 3 no rank has the model.
  std::string sample() {
    computation one(job_.settings.model, 1);
    const sampling_options options{.bytes = job_.settings.sampled_bytes,
                                   .context = job_.settings.model.context,
                                   .seed = job_.settings.seed};
    const auto logits_of = [&](std::span<const std::uint8_t> text, std::span<float> logits) {
      std::copy(text.begin(), text.end(), one.tokens(0).begin());
      one.want_logits(text.size() - 1, logits);
      auto pass = engine_.evaluate();
      forward(pass, one);
      pass.end();
    };
    return sample_text(prompt_of(job_.text.heldout, options.context), options, logits_of);
  }

  /// Over all tensors in layout order, as they are stored.
  std::uint64_t parameters_hash() {
    xxh64 hash;
    for (std::uint32_t t = 0; t < engine_.layout().tensor_count(); ++t) {
      const zero::tensor_id tensor{t};
      std::vector<typename Engine::parameter_type> values(engine_.layout().info(tensor).elements);
      engine_.export_parameters(tensor, values);
      hash.add(std::as_bytes(std::span(values)));
    }
    return hash.value();
  }

  /// The same over the fp32 values that the optimizer updates.
  std::uint64_t masters_hash() {
    xxh64 hash;
    for (std::uint32_t t = 0; t < engine_.layout().tensor_count(); ++t) {
      const zero::tensor_id tensor{t};
      std::vector<float> values(engine_.layout().info(tensor).elements);
      engine_.export_tensor(tensor, values);
      hash.add(std::as_bytes(std::span(values)));
    }
    return hash.value();
  }

 private:
  double micro_batch(std::uint64_t step_number, zero::micro_batch_position position) {
    const std::uint64_t sequences = computation_.sequences();
    const std::uint64_t share = position.micro_batch * static_cast<std::uint64_t>(engine_.ranks()) +
                                static_cast<std::uint64_t>(engine_.rank());
    load_batch(job_.text.training, {job_.settings.seed, step_number, share * sequences},
               computation_);
    auto pass = engine_.train(position);
    forward(pass, computation_);
    backward(pass);
    pass.end();
    return computation_.mean_loss();
  }

  template <class Pass>
  void forward(Pass& pass, computation& model) {
    const auto uses = engine_.layout().uses();
    for (std::size_t use = 0; use < uses.size(); ++use) {
      auto unit = pass.forward(uses[use]);
      model.forward(use, parameters_of(unit, uses[use]));
      std::move(unit).finish();
    }
  }

  void backward(typename Engine::pass& pass) {
    const auto uses = engine_.layout().uses();
    for (std::size_t use = uses.size(); use-- > 0;) {
      auto unit = pass.backward(uses[use]);
      const auto gradients = gradients_.zeroed(uses[use]);
      computation_.backward(use, parameters_of(unit, uses[use]), gradients, pass.loss_scale());
      const auto tensors = engine_.layout().tensors(uses[use]);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        unit.add(tensors[i], {gradients[i], engine_.layout().info(tensors[i]).elements});
      }
      std::move(unit).finish();
    }
  }

  /// The open unit's tensors in fp32: where they lie if that is how they are stored, else a copy.
  template <class Scope>
  std::span<const float* const> parameters_of(const Scope& open, zero::unit_id unit) {
    const auto tensors = engine_.layout().tensors(unit);
    pointers_.resize(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if constexpr (std::is_same_v<typename Engine::parameter_type, float>) {
        pointers_[i] = open.parameters(tensors[i]).data();
      } else {
        float* const copy = parameters_.of(unit)[i];
        open.read(tensors[i], {copy, engine_.layout().info(tensors[i]).elements});
        pointers_[i] = copy;
      }
    }
    return pointers_;
  }

  Engine& engine_;
  const training_job& job_;
  computation computation_;
  unit_scratch parameters_;
  unit_scratch gradients_;
  std::vector<const float*> pointers_;
};

template <class Stage, class Precision, class Optimizer>
rank_run train_rank(rank_communicator& communicator, const training_job& job) {
  using engine_type = zero::engine<Stage, Precision, rank_communicator, Optimizer>;
  const run_settings& settings = job.settings;
  zero::counting_memory memory;
  engine_type engine(communicator, job.model.layout(), optimizer_for_gpt<Optimizer>(),
                     {.accumulation = accumulation_of(settings), .memory = &memory});
  engine.initialize(
      [&](const zero::tensor_info& tensor, std::uint64_t first, std::span<float> values) {
        job.model.initial_values(tensor, first, values);
      });

  rank_run run;
  trainer<engine_type> loop(engine, job);
  for (std::uint64_t step = 1; step <= settings.steps; ++step) {
    communicator.reset();  // so that in the end it has counted the last step alone
    const auto begin = trainer<engine_type>::clock::now();
    run.losses.push_back(loop.step(step));
    const std::chrono::duration<double> seconds = trainer<engine_type>::clock::now() - begin;
    run.step_seconds.push_back(seconds.count());
    if (job.report != nullptr)
      job.report->step(step, settings.steps, run.losses.back());
  }
  run.counted = communicator.counters();
  run.booked = engine.ledger().step;
  run.held = engine.ledger().held;
  run.allocated_bytes = memory.held_bytes();
  run.skipped_steps = engine.skipped_steps();
  run.parameters_hash = loop.parameters_hash();
  if constexpr (zero::has_master<Precision>)
    run.masters_hash = loop.masters_hash();
  run.heldout_nats = loop.heldout_nats();
  if (settings.sampled_bytes > 0)
    run.sample = loop.sample();
  return run;
}

}  // namespace gpt
