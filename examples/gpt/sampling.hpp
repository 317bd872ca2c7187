// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace gpt {

struct sampling_options {
  std::uint64_t bytes = 200;      ///< to generate
  std::uint64_t context = 64;     ///< the model sees at most so many bytes
  double temperature = 0.8;       ///< 0 takes the likeliest byte
  std::uint64_t seed = 1;
};

/// Writes the logits of the byte that follows `text` (1 to context bytes).
using next_byte_logits =
    std::function<void(std::span<const std::uint8_t> text, std::span<float> logits)>;

/// Draws the index of a logit from the softmax of logits / temperature; `draw` is in [0, 1).
std::uint64_t pick(std::span<const float> logits, double temperature, double draw);

/// Continues the prompt byte by byte; returns the continuation alone.
/// The same options and logits give the same text, so ranks that share a model agree.
/// Throws: std::invalid_argument on an empty prompt, context 0 or a negative temperature.
std::string sample_text(std::string_view prompt, const sampling_options& options,
                        const next_byte_logits& logits_of);

/// The text with every byte that a terminal could not show replaced by '?'.
std::string printable(std::string_view text);

}  // namespace gpt
