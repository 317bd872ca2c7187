// SPDX-License-Identifier: Apache-2.0
// links: gpt_model
#include "data.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

namespace fs = std::filesystem;

namespace {

// A folder that goes away with the test.
class scratch_folder {
 public:
  scratch_folder()
      : path_(fs::temp_directory_path() / ("gpt data test." + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~scratch_folder() { fs::remove_all(path_); }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

int exit_code_of(const gpt::corpus_options& options) {
  try {
    gpt::load_corpus(options);
    return 0;
  } catch (const gpt::data_error& error) {
    return error.exit_code();
  }
}

std::string message_of(const gpt::corpus_options& options) {
  try {
    gpt::load_corpus(options);
    return "";
  } catch (const gpt::data_error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("data: licences are sorted, links skipped, MPL-2.0 held out whole") {
  const scratch_folder folder;
  folder.write("Zeta", "last");
  folder.write("Alpha", "first ");
  folder.write("MPL-2.0", "held out");
  folder.write("MPL-1.1", "middle ");
  fs::create_symlink("Alpha", folder.path() / "Beta");
  fs::create_directory(folder.path() / "Gamma");
  const gpt::corpus loaded =
      gpt::load_corpus({.data = {}, .heldout = {}, .context = 4, .licences = folder.path()});
  REQUIRE(text_of(loaded.training) == "first middle last");
  REQUIRE(text_of(loaded.heldout) == "held out");
}

TEST_CASE("data: the last tenth of the user's text is held out") {
  const scratch_folder folder;
  const fs::path file = folder.write("text", "0123456789abcdefghijklmno");
  const gpt::corpus loaded = gpt::load_corpus({.data = file, .heldout = {}, .context = 4});
  REQUIRE(text_of(loaded.training) == "0123456789abcdefghijklm");
  REQUIRE(text_of(loaded.heldout) == "no");
}

TEST_CASE("data: a held-out file leaves the text whole") {
  const scratch_folder folder;
  const fs::path file = folder.write("text", "0123456789");
  const fs::path other = folder.write("other", "xyz");
  const gpt::corpus loaded = gpt::load_corpus({.data = file, .heldout = other, .context = 9});
  REQUIRE(text_of(loaded.training) == "0123456789");
  REQUIRE(text_of(loaded.heldout) == "xyz");
}

TEST_CASE("data: what is absent is exit 4, what is too short exit 2 with the size needed") {
  const scratch_folder folder;
  const fs::path absent = folder.path() / "absent";
  const fs::path ten = folder.write("ten", "0123456789");
  const fs::path long_text = folder.write("long", std::string(1000, 'x'));
  REQUIRE(exit_code_of({.data = absent, .heldout = {}}) == 4);
  REQUIRE(exit_code_of({.data = folder.path(), .heldout = {}}) == 4);
  REQUIRE(exit_code_of({.data = long_text, .heldout = absent}) == 4);
  REQUIRE(exit_code_of({.data = {}, .heldout = {}, .context = 4, .licences = absent}) == 4);
  REQUIRE(exit_code_of({.data = {}, .heldout = {}, .context = 4, .licences = folder.path()}) == 4);
  REQUIRE(exit_code_of({.data = ten, .heldout = {}}) == 2);
  REQUIRE(exit_code_of({.data = ten, .heldout = ten, .context = 10}) == 2);
  REQUIRE(exit_code_of({.data = ten, .heldout = ten, .context = 9}) == 0);
  REQUIRE(exit_code_of({.data = {}, .heldout = ten}) == 2);
  REQUIRE_THAT(message_of({.data = ten, .heldout = ten, .context = 10}),
               Catch::Contains("has 10 bytes") && Catch::Contains("at least 11"));
  folder.write("MPL-2.0", "held out");
  REQUIRE_THAT(
      message_of({.data = {}, .heldout = {}, .context = 4000, .licences = folder.path()}),
      Catch::Contains("at least 4001"));
}

TEST_CASE("data: the size named for a text with its own tenth is the smallest that works") {
  const scratch_folder folder;
  for (const std::uint64_t context : {18u, 19u, 64u, 90u, 127u, 128u}) {
    std::uint64_t smallest = 20;
    while (exit_code_of({.data = folder.write("text", std::string(smallest, 'x')),
                         .heldout = {},
                         .context = context}) != 0) {
      ++smallest;
    }
    CAPTURE(context, smallest);
    REQUIRE(smallest - smallest / 10 >= context + 1);
    REQUIRE((smallest - 1) - (smallest - 1) / 10 < context + 1);
    const fs::path short_text = folder.write("text", std::string(smallest - 1, 'x'));
    REQUIRE_THAT(message_of({.data = short_text, .heldout = {}, .context = context}),
                 Catch::Contains("at least " + std::to_string(smallest) + " are needed"));
  }
}

TEST_CASE("data: a sequence depends on its id alone, its targets are the next bytes") {
  const auto text = bytes_of("the quick brown fox jumps over the lazy dog");
  std::vector<std::uint8_t> tokens(8);
  std::vector<std::uint8_t> targets(8);
  std::set<std::string> drawn;
  for (std::uint64_t index = 0; index < 300; ++index) {
    gpt::draw_sequence(text, {1, 2, 3, index}, tokens, targets);
    REQUIRE(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
    const std::size_t place = text_of(text).find(text_of(tokens) + text_of(targets).back());
    REQUIRE(place != std::string::npos);
    drawn.insert(text_of(tokens));
  }
  REQUIRE(drawn.size() == text.size() - 8);  // every place is reached, the last included
  const std::vector<std::uint8_t> last = tokens;
  gpt::draw_sequence(text, {1, 2, 3, 299}, tokens, targets);
  REQUIRE(tokens == last);
  REQUIRE_THROWS_AS(gpt::draw_sequence(std::span(text).first(8), {}, tokens, targets),
                    std::invalid_argument);
}

TEST_CASE("data: evaluation windows score every byte but the first once") {
  for (const std::uint64_t size : {0u, 1u, 2u, 5u, 8u, 9u, 10u, 17u, 100u}) {
    for (const std::uint64_t stride : {1u, 3u, 4u, 8u}) {
      std::vector<int> scored(size);
      for (const auto& window : gpt::evaluation_windows(size, 8, stride)) {
        REQUIRE(window.length <= 8);
        for (std::uint64_t i = window.skipped; i < window.length; ++i) {
          ++scored.at(window.offset + i + 1);
          const std::uint64_t seen = i + 1;
          REQUIRE((window.offset == 0 || seen > 8 - stride));
        }
      }
      CAPTURE(size, stride);
      for (std::size_t i = 1; i < size; ++i) {
        REQUIRE(scored[i] == 1);
      }
    }
  }
  REQUIRE_THROWS_AS(gpt::evaluation_windows(10, 8, 0), std::invalid_argument);
  REQUIRE_THROWS_AS(gpt::evaluation_windows(10, 8, 9), std::invalid_argument);
}

TEST_CASE("data: a short window is filled up with zeros") {
  const auto text = bytes_of("abcdef");
  std::vector<std::uint8_t> tokens(4, 9);
  std::vector<std::uint8_t> targets(4, 9);
  gpt::copy_window(text, {3, 2, 0}, tokens, targets);
  REQUIRE(tokens == std::vector<std::uint8_t>{'d', 'e', 0, 0});
  REQUIRE(targets == std::vector<std::uint8_t>{'e', 'f', 0, 0});
}

TEST_CASE("data: cross entropies by hand") {
  // Counts plus one: a 3, b 2 of 259.
  REQUIRE(gpt::unigram_cross_entropy(bytes_of("aba"), bytes_of("ab")) ==
          Approx(-(std::log(3.0 / 259) + std::log(2.0 / 259)) / 2));
  // After a: b twice of two pairs; after b: a once of one pair.
  REQUIRE(gpt::bigram_cross_entropy(bytes_of("abab"), bytes_of("aba")) ==
          Approx(-(std::log(3.0 / 258) + std::log(2.0 / 257)) / 2));
}

TEST_CASE("data: copy sequences repeat a beginning of different letters") {
  const gpt::copy_task task{.alphabet = 8, .shortest_period = 3, .longest_period = 5, .seed = 7};
  std::set<std::uint64_t> periods;
  std::set<std::string> beginnings;
  std::vector<std::uint8_t> sequence(20);
  for (std::uint64_t index = 0; index < 200; ++index) {
    const std::uint64_t period = gpt::draw_copy_sequence(task, index, sequence);
    periods.insert(period);
    beginnings.insert(text_of(sequence).substr(0, 3));
    const auto middle = sequence.begin() + static_cast<std::ptrdiff_t>(period);
    REQUIRE(std::set<std::uint8_t>(sequence.begin(), middle).size() == period);
    REQUIRE(std::equal(middle, sequence.end(), sequence.begin()));
    REQUIRE(*std::max_element(sequence.begin(), sequence.end()) < 8);
  }
  REQUIRE(periods == std::set<std::uint64_t>{3, 4, 5});
  REQUIRE(beginnings.size() > 100);
  REQUIRE_THROWS_AS(
      gpt::draw_copy_sequence({.alphabet = 4, .longest_period = 5}, 0, sequence),
      std::invalid_argument);
}
