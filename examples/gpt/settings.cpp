// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "program.hpp"

namespace gpt {
namespace {

// Sign updates (lion) want smaller steps than Adam's, plain gradients larger ones.
double usual_peak(const std::string& optimizer) {
  if (optimizer == "lion") {
    return 3e-4;
  }
  return optimizer == "sgd" ? 0.1 : 2e-3;
}

void require(bool holds, const std::string& message) {
  if (!holds) {
    throw example::usage_failure(message);
  }
}

std::uint64_t shares(const run_settings& settings) {
  return static_cast<std::uint64_t>(settings.ranks) * settings.micro_batches;
}

}  // namespace

void check(const run_settings& settings) {
  constexpr std::array backends{"auto", "threads", "shm", "gloo", "mpi"};
  require(std::find(backends.begin(), backends.end(), settings.backend) != backends.end(),
          "--backend " + settings.backend + " is none of auto, threads, shm, gloo, mpi");
  require(settings.timeout_seconds >= 1, "--timeout 0 must be at least 1 second");
  require(settings.ranks >= 1, "--ranks " + std::to_string(settings.ranks) + " must be at least 1");
  require(settings.steps >= 1, "--steps 0: at least one step is needed");
  require(settings.micro_batches >= 1, "--micro-batches 0 must be at least 1");
  require(settings.batch >= 1 && settings.batch % shares(settings) == 0,
          "--batch " + std::to_string(settings.batch) +
              " counts the sequences of all ranks; it must be a positive multiple of ranks x "
              "micro-batches = " +
              std::to_string(settings.ranks) + " x " + std::to_string(settings.micro_batches));
  const double peak = settings.peak_lr.value_or(1.0);
  require(std::isfinite(peak) && peak > 0, "--lr " + std::to_string(peak) + " must be positive");
  require(std::isfinite(settings.clip) && settings.clip >= 0,
          "--clip " + std::to_string(settings.clip) + " must be 0 (no clipping) or positive");
  try {
    describe_units(settings.model);
  } catch (const std::invalid_argument& failure) {
    throw example::usage_failure(failure.what());
  }
}

std::chrono::nanoseconds timeout_of(const run_settings& settings) {
  // Beyond a year it makes no difference, and a clock can still add it.
  constexpr std::uint64_t longest = std::uint64_t{365} * 24 * 3600;
  return std::chrono::seconds(std::min(settings.timeout_seconds, longest));
}

std::uint64_t sequences_per_rank(const run_settings& settings) {
  return settings.batch / shares(settings);
}

std::uint64_t tokens_per_step(const run_settings& settings) {
  return settings.batch * settings.model.context;
}

zero::accumulation accumulation_of(const run_settings& settings) {
  return settings.micro_batches > 1 ? zero::accumulation::reduce_last : zero::accumulation::none;
}

double learning_rate(const run_settings& settings, std::uint64_t step) {
  constexpr std::uint64_t rising_steps = 25;
  constexpr double lowest = 0.1;
  const double peak = settings.peak_lr.value_or(usual_peak(settings.optimizer));
  if (step <= rising_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(rising_steps);
  }
  const double progress =
      static_cast<double>(step - rising_steps) / static_cast<double>(settings.steps - rising_steps);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
  return peak * (lowest + (1.0 - lowest) * cosine);
}

}  // namespace gpt
