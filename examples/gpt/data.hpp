// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt {

/// Something is wrong with the text to train on; carries the exit code of the program.
class data_error : public std::runtime_error {
 public:
  static constexpr int usage = 2;   // the text is there but cannot be used
  static constexpr int absent = 4;  // a file is not there

  data_error(int code, const std::string& message)
      : std::runtime_error(message), exit_code_(code) {}
  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// The text to train on and the text that is only measured.
struct corpus {
  std::vector<std::uint8_t> training;
  std::vector<std::uint8_t> heldout;
};

struct corpus_options {
  std::optional<std::filesystem::path> data;     ///< the user's text instead of the licences
  std::optional<std::filesystem::path> heldout;  ///< only with data; else its last tenth
  std::uint64_t context = 64;
  std::filesystem::path licences = "/usr/share/common-licenses";
};

/// Loads the user's text, or the licence texts of a Debian machine.
/// The latter are the regular files of the folder sorted by name; symbolic links are duplicates and
/// are skipped, and MPL-2.0 is held out whole.
/// Throws: data_error when a file is absent or the text is shorter than context + 1.
corpus load_corpus(const corpus_options& options);

/// Which sequence of the global batch: the same for every number of ranks.
struct sample_id {
  std::uint64_t seed;
  std::uint64_t step;
  std::uint64_t micro_batch;
  std::uint64_t index;  ///< inside the global batch, over all ranks
};

/// Copies `tokens.size()` bytes of the text from a place drawn by the sample's id, and the bytes
/// that follow each of them.
/// Throws: std::invalid_argument unless both spans have equal size and fit into the text.
void draw_sequence(std::span<const std::uint8_t> text, const sample_id& id,
                   std::span<std::uint8_t> tokens, std::span<std::uint8_t> targets);

/// A piece of held-out text: `length` predictions from `offset`, of which the first `skipped` are
/// context only, because an earlier window has scored them.
struct evaluation_window {
  std::uint64_t offset;
  std::uint64_t length;
  std::uint64_t skipped;
};

/// Windows of at most `context` predictions, `stride` apart, that score every byte of the text but
/// the first exactly once. With stride < context each byte but the earliest is predicted from at
/// least context - stride bytes.
std::vector<evaluation_window> evaluation_windows(std::uint64_t text_bytes, std::uint64_t context,
                                                  std::uint64_t stride);

/// Copies a window's bytes and targets; what the window does not fill is set to zero.
void copy_window(std::span<const std::uint8_t> text, const evaluation_window& window,
                 std::span<std::uint8_t> tokens, std::span<std::uint8_t> targets);

/// Cross entropy, in nats per byte, of a text under byte frequencies of the training text
/// (one added to each of the 256 counts).
double unigram_cross_entropy(std::span<const std::uint8_t> training,
                             std::span<const std::uint8_t> heldout);

/// The same under frequencies of byte pairs: p(next | byte).
double bigram_cross_entropy(std::span<const std::uint8_t> training,
                            std::span<const std::uint8_t> heldout);

/// A sequence that repeats a random beginning: only a model that looks back predicts it.
struct copy_task {
  std::uint64_t alphabet = 16;       ///< bytes 0 .. alphabet - 1
  std::uint64_t shortest_period = 3;
  std::uint64_t longest_period = 8;  ///< at most alphabet: bytes inside one period differ
  std::uint64_t seed = 1;
};

/// Fills `sequence` and returns its period. Byte i + 1 follows from the bytes before it from
/// i = period on: byte i was seen before, and what followed it.
/// Throws: std::invalid_argument when the periods are not 0 < shortest <= longest <= alphabet.
std::uint64_t draw_copy_sequence(const copy_task& task, std::uint64_t index,
                                 std::span<std::uint8_t> sequence);

}  // namespace gpt
