// SPDX-License-Identifier: Apache-2.0
#include "sampling.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "counter_random.hpp"

namespace gpt {

std::uint64_t pick(std::span<const float> logits, double temperature, double draw) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) {
    return static_cast<std::uint64_t>(largest - logits.begin());
  }
  std::vector<double> cumulative(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp((static_cast<double>(logits[i]) - static_cast<double>(*largest)) / temperature);
    cumulative[i] = sum;
  }
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), draw * sum);
  // draw < 1, but draw * sum may round up to sum.
  const auto index = static_cast<std::uint64_t>(found - cumulative.begin());
  return std::min<std::uint64_t>(index, logits.size() - 1);
}

std::string sample_text(std::string_view prompt, const sampling_options& options,
                        const next_byte_logits& logits_of) {
  if (prompt.empty() || options.context == 0 || !(options.temperature >= 0)) {
    throw std::invalid_argument("sample_text: prompt of " + std::to_string(prompt.size()) +
                                " bytes, context " + std::to_string(options.context) +
                                ", temperature " + std::to_string(options.temperature));
  }
  std::vector<std::uint8_t> text(prompt.begin(), prompt.end());
  std::vector<float> logits(256);
  for (std::uint64_t i = 0; i < options.bytes; ++i) {
    const std::size_t seen = std::min<std::size_t>(text.size(), options.context);
    logits_of(std::span<const std::uint8_t>(text).last(seen), logits);
    const double draw = unit_interval(counter_hash({options.seed, i}));
    text.push_back(static_cast<std::uint8_t>(pick(logits, options.temperature, draw)));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

std::string printable(std::string_view text) {
  std::string shown(text);
  for (char& letter : shown) {
    const bool is_shown = (letter >= ' ' && letter <= '~') || letter == '\n' || letter == '\t';
    letter = is_shown ? letter : '?';
  }
  return shown;
}

}  // namespace gpt
