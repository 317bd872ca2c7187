// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "measure.hpp"

namespace collectives_bench {

inline constexpr double mebibyte = 1048576;

/// "reduce_scatter of 64 MiB fp32, 2 ranks"
std::string title_of(const comparison& compared);
/// One line per contender: times, bandwidth, CPU time, and ratios to two of the others.
void print_table(const comparison& compared);
/// One line per target and workload, with what was measured and whether that is enough.
void print_targets(const std::vector<comparison>& all);
/// Every repetition of every contender, with units in the names, and the targets.
void write_json(const std::string& file, const std::vector<comparison>& all);

}  // namespace collectives_bench
