// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data.hpp"
#include "model.hpp"

namespace gpt {

/// The arithmetic of one rank: which layer runs at which use of a unit.
///
/// Use 0 is the embedding, then come the blocks and the final layer norm; the last use is the head,
/// which reads the embedding's tensors again. Backward goes through the same numbers downwards.
class computation {
 public:
  computation(const configuration& model, std::uint64_t sequences);

  std::uint64_t sequences() const { return state_.batch; }

  /// Where the input goes: sequence after sequence, context bytes each.
  std::span<std::uint8_t> tokens(std::uint64_t sequence) { return row_of(tokens_, sequence); }
  std::span<std::uint8_t> targets(std::uint64_t sequence) { return row_of(targets_, sequence); }

  /// Pointers in the order of the unit's tensors.
  void forward(std::uint64_t use, std::span<const float* const> parameters);
  /// Adds to the gradients: of loss_scale x the mean loss of all sequences.
  void backward(std::uint64_t use, std::span<const float* const> parameters,
                std::span<float* const> gradients, float loss_scale);

  /// Nats per byte, the mean over the last forward's predictions.
  double mean_loss() const { return mean_loss_; }
  /// Nats of each prediction of a sequence in the last forward.
  std::span<const float> losses(std::uint64_t sequence) const;

  /// From now on the head computes no losses but the logits of one position of sequence 0.
  void want_logits(std::uint64_t position, std::span<float> logits);

 private:
  std::span<std::uint8_t> row_of(std::vector<std::uint8_t>& bytes, std::uint64_t sequence) {
    return std::span(bytes).subspan(sequence * state_.length, state_.length);
  }
  std::uint64_t final_use() const { return state_.model.layers + 1; }

  activations<float> state_;
  std::vector<std::uint8_t> tokens_;
  std::vector<std::uint8_t> targets_;
  double mean_loss_ = 0;
  std::uint64_t logits_position_ = 0;
  std::span<float> logits_;  ///< empty: losses are wanted
};

/// This rank's sequences of a micro-batch. The global batch of a step is the same for any number of
/// ranks and micro-batches: only who computes which sequence differs.
struct batch_share {
  std::uint64_t seed;
  std::uint64_t step;
  std::uint64_t first_sequence;  ///< inside the global batch
};
void load_batch(std::span<const std::uint8_t> text, const batch_share& share, computation& into);

/// What a sample continues: the beginning of the held-out text, as far as it fits.
std::string prompt_of(std::span<const std::uint8_t> heldout, std::uint64_t context);

/// Scores a text in windows of one context, side by side, shared out among the ranks.
class heldout_score {
 public:
  heldout_score(std::span<const std::uint8_t> text, std::uint64_t context, int rank, int ranks,
                std::uint64_t sequences);

  /// The same on every rank; a rank that has run out of windows scores nothing in its last pass.
  std::uint64_t passes() const { return passes_; }
  void load(std::uint64_t pass, computation& into) const;
  void add(std::uint64_t pass, const computation& scored);
  /// Nats that this rank's windows cost so far.
  double sum() const { return sum_; }

 private:
  /// The windows of this rank in that pass.
  std::span<const evaluation_window> windows(std::uint64_t pass) const;

  std::span<const std::uint8_t> text_;
  std::vector<evaluation_window> windows_;
  std::uint64_t rank_;
  std::uint64_t ranks_;
  std::uint64_t sequences_;
  std::uint64_t passes_;
  double sum_ = 0;
};

}  // namespace gpt
