// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <span>
#include <string>

#include "command_line.hpp"
#include "comparison.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "run_json.hpp"
#include "run_record.hpp"

// train_gpt: trains a small GPT on text, under one ZeRO stage.

namespace {

example::exit_code train_one(const gpt::command& what) {
  const gpt::corpus text = gpt::load_text(what);
  const auto world = gpt::open_ranks(what.settings);
  gpt::progress report(what.is_quiet || !world->is_reporting());
  const gpt::run_record record =
      gpt::train(what.run_of(what.stages.front(), what.precisions.front()), text, *world, report);
  report.end();
  const auto failures = gpt::failures_of(std::span(&record, 1));
  const auto result =
      failures.empty() ? example::exit_code::success : example::exit_code::check_failed;
  if (!world->is_reporting()) {
    return result;
  }
  if (!what.json_file.empty()) {
    example::write_file(what.json_file, gpt::to_json(std::span(&record, 1)));
  }
  if (!what.losses_file.empty()) {
    gpt::write_losses(what.losses_file, record.losses);
  }
  std::cout << gpt::comparison_table(std::span(&record, 1));
  if (!record.sample.empty()) {
    std::cout << "\n" << gpt::sample_of(record, text);
  }
  for (const std::string& failure : failures) {
    std::cerr << "train_gpt: " << failure << '\n';
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  return gpt::run_command({"train_gpt", "Trains a byte-level GPT under one ZeRO stage.", false},
                          argc, argv, train_one);
}
