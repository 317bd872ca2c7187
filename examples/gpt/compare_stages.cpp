// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "comparison.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "run_json.hpp"
#include "run_record.hpp"

// compare_stages: trains the same small GPT under several ZeRO stages, and checks that they hold
// and move what the paper says and that they compute the same bits.

namespace {

std::vector<gpt::run_record> train_all(const gpt::command& what, const gpt::corpus& text,
                                       gpt::rank_world& world) {
  gpt::progress report(what.is_quiet || !world.is_reporting());
  std::vector<gpt::run_record> runs;
  for (const std::string& precision : what.precisions) {
    for (const std::string& stage : what.stages) {
      gpt::run_settings settings = what.run_of(stage, precision);
      const bool is_last = precision == what.precisions.back() && stage == what.stages.back();
      if (!is_last) {
        settings.sampled_bytes = 0;
      }
      runs.push_back(gpt::train(settings, text, world, report));
    }
  }
  return runs;
}

/// Of all precisions, in words.
std::vector<std::string> failures_of_all(const gpt::command& what,
                                         std::span<const gpt::run_record> runs) {
  std::vector<std::string> failures;
  for (std::size_t first = 0; first < runs.size(); first += what.stages.size()) {
    for (const std::string& failure : gpt::failures_of(runs.subspan(first, what.stages.size()))) {
      failures.push_back(failure);
    }
  }
  return failures;
}

void report(const gpt::command& what, const gpt::corpus& text,
            std::span<const gpt::run_record> runs, const std::vector<std::string>& failures) {
  if (!what.json_file.empty()) {
    example::write_file(what.json_file, gpt::to_json(runs));
  }
  for (std::size_t first = 0; first < runs.size(); first += what.stages.size()) {
    std::cout << gpt::comparison_table(runs.subspan(first, what.stages.size())) << '\n';
  }
  if (!runs.back().sample.empty()) {
    std::cout << gpt::sample_of(runs.back(), text) << '\n';
  }
  for (const std::string& failure : failures) {
    std::cerr << "compare_stages: " << failure << '\n';
  }
  if (failures.empty()) {
    std::cout << "Every rank held the predicted bytes and moved the predicted elements; all "
                 "stages computed the same bits.\n";
  }
}

example::exit_code compare(const gpt::command& what) {
  const gpt::corpus text = gpt::load_text(what);
  const auto world = gpt::open_ranks(what.settings);
  const std::vector<gpt::run_record> runs = train_all(what, text, *world);
  const std::vector<std::string> failures = failures_of_all(what, runs);
  if (world->is_reporting()) report(what, text, runs, failures);
  return failures.empty() ? example::exit_code::success : example::exit_code::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  return gpt::run_command({"compare_stages",
                           "Trains a byte-level GPT under several ZeRO stages and "
                           "compares what they hold, move and compute.",
                           true},
                          argc, argv, compare);
}
