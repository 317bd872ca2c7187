// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <zero/model_state.hpp>

#include "catalogue.hpp"
#include "rank_run.hpp"
#include "settings.hpp"

namespace gpt {

/// What a run showed, over all ranks: measured beside predicted.
struct run_record {
  run_settings settings;
  std::uint64_t psi = 0;               ///< trainable elements, a tied tensor once
  std::uint64_t padding_elements = 0;  ///< behind and between them, over all ranks
  std::vector<zero::held_bytes> held;  ///< of each rank
  std::vector<zero::held_bytes> predicted;
  zero::moved_elements moved;  ///< in the last step, counted by the meter of rank 0
  zero::moved_elements predicted_moved;
  std::vector<double> losses;  ///< of each step, the mean over the global batch
  double heldout_loss = 0;     ///< nats per byte
  double unigram_heldout = 0;
  double bigram_heldout = 0;
  std::uint64_t skipped_steps = 0;
  double tokens_per_second = 0;
  std::string parameters_xxh64;
  std::string masters_xxh64;  ///< empty where there are no masters
  std::string sample;
  std::vector<std::string> failures;  ///< what was not as it should be, in words

  double first_loss() const { return losses.front(); }
  /// The mean of the last ten steps.
  double last_loss() const;
};

/// The paper's numbers for a run.
struct paper_figures {
  std::string bytes_formula;          ///< of one rank, "4 Psi + 12 Psi/N"
  std::uint64_t all_ranks_bytes = 0;  ///< of all ranks together, exact
  double rank_bytes = 0;
  std::string volume_formula;  ///< "2 Psi"
  std::uint64_t volume = 0;    ///< elements per step
};
paper_figures paper_of(const run_record& record);

/// Sum of parameters, gradients and optimizer states over all ranks.
std::uint64_t model_state_bytes(const run_record& record);

/// Brings together what the ranks saw; every rank gets the same record. What is compared here and
/// differs is written into `failures`.
/// Collective: every rank. Moves: a few numbers per rank and step, after all that is counted.
run_record combine(rank_communicator& communicator, const training_job& job,
                   const trainer_entry& trainer, const rank_run& own);

class rank_world;

/// Trains on all ranks of the world. Collective: every process of it.
/// Throws: example::usage_failure, zero::error.
run_record train(const run_settings& settings, const corpus& text, rank_world& world,
                 progress& report);

}  // namespace gpt
