// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <zero/model_state.hpp>

#include "units.hpp"

namespace gpt {

/// Everything a training run depends on besides the text. Policies go by their names.
struct run_settings {
  configuration model{};
  std::string stage = "3";
  std::string precision = "bf16_mixed";
  std::string optimizer = "adamw";
  std::string backend = "auto";         ///< threads, shm, gloo, mpi; auto: what the launch suggests
  std::string interface{};              ///< of the network, for gloo; empty: found out
  std::uint64_t timeout_seconds = 600;  ///< how long a rank waits for its peers
  int ranks = 4;
  std::uint64_t steps = 320;
  std::uint64_t micro_batches = 1;
  std::uint64_t batch = 8;          ///< sequences of a step, over all ranks and micro-batches
  std::optional<double> peak_lr{};  ///< unset: what suits the optimizer
  double clip = 1.0;                ///< largest norm of the gradient, 0 switches clipping off
  std::uint64_t seed = 1;
  std::uint64_t sampled_bytes = 200;  ///< text to generate after training
};

/// Throws: example::usage_failure with the values that do not fit, unless a run can start.
void check(const run_settings& settings);

std::chrono::nanoseconds timeout_of(const run_settings& settings);

/// How many sequences one rank computes in one micro-batch.
std::uint64_t sequences_per_rank(const run_settings& settings);

/// Bytes of text that a step learns from, over all ranks.
std::uint64_t tokens_per_step(const run_settings& settings);

/// reduce_last where there is something to accumulate.
zero::accumulation accumulation_of(const run_settings& settings);

/// The learning rate of step 1, 2, ... steps: it rises over the first 25 steps and then falls along
/// half a cosine to a tenth of its peak.
double learning_rate(const run_settings& settings, std::uint64_t step);

}  // namespace gpt
