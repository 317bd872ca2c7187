// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "run_record.hpp"

namespace gpt {

/// A column for each run: what a rank holds and what moved beside the paper's formulas, speed,
/// losses, and whether the values equal those of the first run. The runs have one precision.
std::string comparison_table(std::span<const run_record> runs);

/// The sample behind the text that it continues, with a line that says what it is.
std::string sample_of(const run_record& run, const corpus& text);

/// What is wrong with the runs of one precision, a line each: their own failures, and values that
/// differ from those of the first run.
std::vector<std::string> failures_of(std::span<const run_record> runs);

}  // namespace gpt
