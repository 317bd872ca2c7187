// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/metered.hpp>
#include <zero/model_state.hpp>

#include "data.hpp"
#include "model_layout.hpp"
#include "settings.hpp"

namespace gpt {

class progress;

/// What every engine of these programs talks through. The backend is chosen at run time, so that
/// an engine is compiled once for all of them, and what passes is counted.
using rank_communicator = zero::metered<zero::any_communicator>;

/// What a rank needs in order to train; the same on every rank.
struct training_job {
  const run_settings& settings;
  const corpus& text;
  const described_model& model;
  progress* report = nullptr;  ///< null on all ranks but one
};

/// What one rank saw of a run.
struct rank_run {
  zero::held_bytes held;              ///< by the engine's arena
  std::uint64_t allocated_bytes = 0;  ///< by the memory resource that the engine was given
  zero::traffic_counters counted;     ///< by the meter, in the last step
  zero::moved_elements booked;        ///< by the engine's ledger, in the last step
  std::vector<double> losses;         ///< of each step, the mean over this rank's sequences
  std::vector<double> step_seconds;
  double heldout_nats = 0;  ///< what this rank's part of the held-out text costs
  std::uint64_t skipped_steps = 0;
  std::uint64_t parameters_hash = 0;
  std::uint64_t masters_hash = 0;
  std::string sample;  ///< the same on every rank
};

/// Trains on one rank from the first value to the last hash. Defined in trainer.hpp, instantiated
/// in engines/, one file for each stage and precision.
/// Collective: every rank. Throws: zero::error.
template <class Stage, class Precision, class Optimizer>
rank_run train_rank(rank_communicator& communicator, const training_job& job);

}  // namespace gpt
