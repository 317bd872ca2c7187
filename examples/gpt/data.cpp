// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>

#include "counter_random.hpp"

namespace gpt {
namespace {

namespace fs = std::filesystem;
using bytes = std::vector<std::uint8_t>;

bytes read_file(const fs::path& path) {
  std::error_code failure;
  if (!fs::exists(path, failure)) {
    throw data_error(data_error::absent, "no such file: " + path.string());
  }
  std::ifstream file(path, std::ios::binary);
  if (fs::is_directory(path, failure) || !file) {
    throw data_error(data_error::absent, "cannot be read: " + path.string());
  }
  bytes text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) {
    throw data_error(data_error::absent, "cannot be read to its end: " + path.string());
  }
  return text;
}

void require_size(const bytes& text, std::uint64_t needed, const std::string& what,
                  const std::string& why) {
  if (text.size() < needed) {
    throw data_error(data_error::usage, what + " has " + std::to_string(text.size()) +
                                            " bytes, at least " + std::to_string(needed) +
                                            " are needed (" + why + ")");
  }
}

std::string context_reason(std::uint64_t context) {
  return "one context of " + std::to_string(context) + " and the byte after it";
}

// Two bytes make one prediction.
void require_heldout(const bytes& text, const std::string& what) {
  require_size(text, 2, what, "one byte and the one after it");
}

corpus load_licences(const corpus_options& options) {
  const fs::path& folder = options.licences;
  const std::string heldout_name = "MPL-2.0";
  std::error_code failure;
  if (!fs::is_directory(folder, failure)) {
    throw data_error(data_error::absent, "no such folder: " + folder.string() +
                                             " (give a text with --data FILE)");
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const bool is_text = entry.is_regular_file() && !entry.is_symlink();
    if (is_text && entry.path().filename() != heldout_name) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  corpus loaded;
  for (const fs::path& file : files) {
    const bytes text = read_file(file);
    loaded.training.insert(loaded.training.end(), text.begin(), text.end());
  }
  loaded.heldout = read_file(folder / heldout_name);
  require_size(loaded.training, options.context + 1, "the text in " + folder.string(),
               context_reason(options.context));
  require_heldout(loaded.heldout, (folder / heldout_name).string());
  return loaded;
}

corpus load_file(const corpus_options& options) {
  const std::string name = options.data->string();
  corpus loaded{read_file(*options.data), {}};
  if (options.heldout) {
    loaded.heldout = read_file(*options.heldout);
    require_heldout(loaded.heldout, options.heldout->string());
    require_size(loaded.training, options.context + 1, name, context_reason(options.context));
    return loaded;
  }
  // The smallest size n with n - floor(n / 10) > context, whose tenth has two bytes or more.
  const std::uint64_t needed =
      std::max<std::uint64_t>(20, options.context + 1 + options.context / 9);
  require_size(loaded.training, needed, name,
               context_reason(options.context) + ", plus the last tenth that is held out");
  const std::uint64_t kept = loaded.training.size() - loaded.training.size() / 10;
  const auto middle = loaded.training.begin() + static_cast<std::ptrdiff_t>(kept);
  loaded.heldout.assign(middle, loaded.training.end());
  loaded.training.erase(middle, loaded.training.end());
  return loaded;
}

constexpr std::uint64_t byte_values = 256;

// counts[i] occurrences among total, with one more of each.
double smoothed_log_probability(std::uint64_t count, std::uint64_t total) {
  return std::log(static_cast<double>(count + 1) / static_cast<double>(total + byte_values));
}

}  // namespace

corpus load_corpus(const corpus_options& options) {
  if (options.heldout && !options.data) {
    throw data_error(data_error::usage, "a held-out text was given without a text to train on");
  }
  return options.data ? load_file(options) : load_licences(options);
}

void draw_sequence(std::span<const std::uint8_t> text, const sample_id& id,
                   std::span<std::uint8_t> tokens, std::span<std::uint8_t> targets) {
  const std::uint64_t length = tokens.size();
  if (targets.size() != length || length + 1 > text.size()) {
    throw std::invalid_argument("draw_sequence: " + std::to_string(length) + " tokens and " +
                                std::to_string(targets.size()) + " targets from a text of " +
                                std::to_string(text.size()) + " bytes");
  }
  const std::uint64_t places = text.size() - length;
  const std::uint64_t first =
      counter_hash({id.seed, id.step, id.micro_batch, id.index}) % places;
  copy_window(text, {first, length, 0}, tokens, targets);
}

std::vector<evaluation_window> evaluation_windows(std::uint64_t text_bytes, std::uint64_t context,
                                                  std::uint64_t stride) {
  if (context == 0 || stride == 0 || stride > context) {
    throw std::invalid_argument("evaluation_windows: stride " + std::to_string(stride) +
                                " must be in 1 .. context " + std::to_string(context));
  }
  std::vector<evaluation_window> windows;
  const std::uint64_t predictions = text_bytes == 0 ? 0 : text_bytes - 1;
  std::uint64_t scored = 0;
  for (std::uint64_t offset = 0; scored < predictions; offset += stride) {
    const std::uint64_t length = std::min(context, predictions - offset);
    windows.push_back({offset, length, scored - offset});
    scored = offset + length;
  }
  return windows;
}

void copy_window(std::span<const std::uint8_t> text, const evaluation_window& window,
                 std::span<std::uint8_t> tokens, std::span<std::uint8_t> targets) {
  const auto piece = text.subspan(window.offset, window.length + 1);
  std::fill(std::copy(piece.begin(), piece.end() - 1, tokens.begin()), tokens.end(),
            std::uint8_t{0});
  std::fill(std::copy(piece.begin() + 1, piece.end(), targets.begin()), targets.end(),
            std::uint8_t{0});
}

double unigram_cross_entropy(std::span<const std::uint8_t> training,
                             std::span<const std::uint8_t> heldout) {
  std::array<std::uint64_t, byte_values> counts{};
  for (const std::uint8_t byte : training) {
    ++counts[byte];
  }
  double sum = 0;
  for (const std::uint8_t byte : heldout) {
    sum -= smoothed_log_probability(counts[byte], training.size());
  }
  return sum / static_cast<double>(heldout.size());
}

double bigram_cross_entropy(std::span<const std::uint8_t> training,
                            std::span<const std::uint8_t> heldout) {
  std::vector<std::uint64_t> pairs(byte_values * byte_values);
  std::array<std::uint64_t, byte_values> totals{};
  for (std::size_t i = 1; i < training.size(); ++i) {
    ++pairs[training[i - 1] * byte_values + training[i]];
    ++totals[training[i - 1]];
  }
  double sum = 0;
  for (std::size_t i = 1; i < heldout.size(); ++i) {
    const std::uint8_t before = heldout[i - 1];
    sum -= smoothed_log_probability(pairs[before * byte_values + heldout[i]], totals[before]);
  }
  return sum / static_cast<double>(heldout.size() - 1);
}

std::uint64_t draw_copy_sequence(const copy_task& task, std::uint64_t index,
                                 std::span<std::uint8_t> sequence) {
  if (task.shortest_period == 0 || task.shortest_period > task.longest_period ||
      task.longest_period > task.alphabet || task.alphabet > byte_values) {
    throw std::invalid_argument("copy_task: periods " + std::to_string(task.shortest_period) +
                                " to " + std::to_string(task.longest_period) + ", alphabet " +
                                std::to_string(task.alphabet));
  }
  const std::uint64_t choices = task.longest_period - task.shortest_period + 1;
  const std::uint64_t period =
      task.shortest_period + counter_hash({task.seed, index, 0}) % choices;
  // The beginning of a shuffled alphabet.
  std::vector<std::uint8_t> letters(task.alphabet);
  std::iota(letters.begin(), letters.end(), std::uint8_t{0});
  for (std::uint64_t i = 0; i < period; ++i) {
    const std::uint64_t other =
        i + counter_hash({task.seed, index, i + 1}) % (task.alphabet - i);
    std::swap(letters[i], letters[other]);
  }
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    sequence[i] = letters[i % period];
  }
  return period;
}

}  // namespace gpt
