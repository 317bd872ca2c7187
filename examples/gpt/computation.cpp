// SPDX-License-Identifier: Apache-2.0
#include "computation.hpp"

#include <algorithm>

namespace gpt {

computation::computation(const configuration& model, std::uint64_t sequences)
    : state_(model, sequences, model.context),
      tokens_(sequences * model.context),
      targets_(sequences * model.context) {}

void computation::forward(std::uint64_t use, std::span<const float* const> parameters) {
  if (use == 0) {
    embedding_forward<float>(embedding_from<const float*>(parameters), tokens_, state_);
  } else if (use < final_use()) {
    block_forward<float>(use - 1, block_from<const float*>(parameters), state_);
  } else if (use == final_use()) {
    final_forward<float>(final_from<const float*>(parameters), state_);
  } else if (logits_.empty()) {
    mean_loss_ = head_forward<float>(embedding_from<const float*>(parameters), targets_, state_);
  } else {
    head_logits<float>(embedding_from<const float*>(parameters), state_, logits_position_, logits_);
  }
}

void computation::backward(std::uint64_t use, std::span<const float* const> parameters,
                           std::span<float* const> gradients, float loss_scale) {
  if (use == 0) {
    embedding_backward<float>(embedding_from<float*>(gradients), tokens_, state_);
  } else if (use < final_use()) {
    block_backward<float>(use - 1, block_from<const float*>(parameters),
                          block_from<float*>(gradients), state_);
  } else if (use == final_use()) {
    final_backward<float>(final_from<const float*>(parameters), final_from<float*>(gradients),
                          state_);
  } else {
    head_backward<float>(embedding_from<const float*>(parameters),
                         embedding_from<float*>(gradients), targets_, loss_scale, state_);
  }
}

std::span<const float> computation::losses(std::uint64_t sequence) const {
  return std::span(state_.losses).subspan(sequence * state_.length, state_.length);
}

void computation::want_logits(std::uint64_t position, std::span<float> logits) {
  logits_position_ = position;
  logits_ = logits;
}

void load_batch(std::span<const std::uint8_t> text, const batch_share& share, computation& into) {
  for (std::uint64_t i = 0; i < into.sequences(); ++i) {
    const sample_id id{share.seed, share.step, 0, share.first_sequence + i};
    draw_sequence(text, id, into.tokens(i), into.targets(i));
  }
}

std::string prompt_of(std::span<const std::uint8_t> heldout, std::uint64_t context) {
  const auto beginning = heldout.first(std::min<std::uint64_t>({heldout.size(), context, 32}));
  return {beginning.begin(), beginning.end()};
}

heldout_score::heldout_score(std::span<const std::uint8_t> text, std::uint64_t context, int rank,
                             int ranks, std::uint64_t sequences)
    : text_(text),
      windows_(evaluation_windows(text.size(), context, context)),
      rank_(static_cast<std::uint64_t>(rank)),
      ranks_(static_cast<std::uint64_t>(ranks)),
      sequences_(sequences),
      passes_((windows_.size() + ranks_ * sequences_ - 1) / (ranks_ * sequences_)) {}

std::span<const evaluation_window> heldout_score::windows(std::uint64_t pass) const {
  const std::uint64_t first = std::min((pass * ranks_ + rank_) * sequences_, windows_.size());
  const std::uint64_t count = std::min(sequences_, windows_.size() - first);
  return std::span(windows_).subspan(first, count);
}

void heldout_score::load(std::uint64_t pass, computation& into) const {
  std::uint64_t sequence = 0;
  for (const evaluation_window& window : windows(pass)) {
    copy_window(text_, window, into.tokens(sequence), into.targets(sequence));
    ++sequence;
  }
}

void heldout_score::add(std::uint64_t pass, const computation& scored) {
  std::uint64_t sequence = 0;
  for (const evaluation_window& window : windows(pass)) {
    const auto losses =
        scored.losses(sequence).subspan(window.skipped, window.length - window.skipped);
    for (const float loss : losses) {
      sum_ += static_cast<double>(loss);
    }
    ++sequence;
  }
}

}  // namespace gpt
