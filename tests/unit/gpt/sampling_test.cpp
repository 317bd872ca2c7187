// SPDX-License-Identifier: Apache-2.0
// links: gpt_model
#include "sampling.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

TEST_CASE("sampling: temperature 0 takes the likeliest") {
  const std::array<float, 4> logits{1.0f, 3.0f, 2.0f, -1.0f};
  for (const double draw : {0.0, 0.5, 0.999}) {
    REQUIRE(gpt::pick(logits, 0, draw) == 1);
  }
}

TEST_CASE("sampling: draws follow the softmax of logits / temperature") {
  const std::array<float, 3> logits{0.0f, 2.0f, 1.0f};
  const double temperature = 2;
  std::array<double, 3> frequency{};
  constexpr int draws = 100'000;
  for (int i = 0; i < draws; ++i) {
    frequency[gpt::pick(logits, temperature, (i + 0.5) / draws)] += 1.0 / draws;
  }
  const double sum = 1 + std::exp(1.0) + std::exp(0.5);
  REQUIRE(frequency[0] == Approx(1 / sum).margin(1e-4));
  REQUIRE(frequency[1] == Approx(std::exp(1.0) / sum).margin(1e-4));
  REQUIRE(frequency[2] == Approx(std::exp(0.5) / sum).margin(1e-4));
  REQUIRE(gpt::pick(logits, temperature, std::nextafter(1.0, 0.0)) == 2);
}

TEST_CASE("sampling: the model sees the end of the text, at most a context of it") {
  std::vector<std::size_t> seen;
  // A model that always continues the alphabet.
  const auto alphabet = [&seen](std::span<const std::uint8_t> text, std::span<float> logits) {
    seen.push_back(text.size());
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[text.back() + 1u] = 100.0f;
  };
  const gpt::sampling_options options{.bytes = 4, .context = 3, .temperature = 1.0, .seed = 1};
  REQUIRE(gpt::sample_text("a", options, alphabet) == "bcde");
  REQUIRE(seen == std::vector<std::size_t>{1, 2, 3, 3});
}

TEST_CASE("sampling: equal seeds give equal texts, others differ") {
  const auto flat = [](std::span<const std::uint8_t>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
  };
  const auto text = [&flat](std::uint64_t seed) {
    return gpt::sample_text("x", {.bytes = 32, .context = 8, .temperature = 1, .seed = seed}, flat);
  };
  REQUIRE(text(1) == text(1));
  REQUIRE(text(1) != text(2));
}

TEST_CASE("sampling: misuse throws, control bytes are not shown") {
  const auto none = [](std::span<const std::uint8_t>, std::span<float>) {};
  REQUIRE_THROWS_AS(gpt::sample_text("", {}, none), std::invalid_argument);
  REQUIRE_THROWS_AS(gpt::sample_text("a", {.context = 0}, none), std::invalid_argument);
  REQUIRE_THROWS_AS(gpt::sample_text("a", {.temperature = -1}, none), std::invalid_argument);
  REQUIRE(gpt::printable(std::string("a\x1b\n\xff")) == "a?\n?");
}
