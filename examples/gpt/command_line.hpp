// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data.hpp"
#include "program.hpp"
#include "settings.hpp"

namespace gpt {

/// What was asked for on the command line.
struct command {
  run_settings settings;
  std::vector<std::string> stages;      ///< one for train_gpt
  std::vector<std::string> precisions;  ///< one for train_gpt
  corpus_options data;
  std::string json_file;    ///< empty: none
  std::string losses_file;  ///< empty: none
  bool is_quiet = false;

  /// The settings of one of the runs.
  run_settings run_of(const std::string& stage, const std::string& precision) const;
};

/// What tells the two programs apart.
struct program_form {
  std::string name;
  std::string description;
  bool compares;  ///< --stages and --precisions in place of --stage and --precision
};

/// Parses, checks that every run can start, and calls `body`; returns the program's exit code.
int run_command(const program_form& form, int argc, const char* const* argv,
                const std::function<example::exit_code(const command&)>& body);

/// The text of the command. Throws: example::usage_failure, example::absent_failure.
corpus load_text(const command& what);

/// A line for each step, after a line with the names of the columns.
void write_losses(const std::string& path, const std::vector<double>& losses);

}  // namespace gpt
