// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "contender.hpp"
#include "team.hpp"

namespace collectives_bench {

/// What one contender took, repetition by repetition.
struct series {
  contender_id subject = contender_id::copy;
  std::vector<timing> timings;

  std::vector<double> seconds() const;
  std::vector<double> cpu_seconds() const;
};

/// Several contenders at the same workload, measured in turn: repetition i of one is next to
/// repetition i of any other, so load on the machine hits all alike.
struct comparison {
  int ranks = 1;
  workload load;
  std::uint32_t iterations = 1;  // of each repetition
  std::vector<series> measured;

  /// Null where it was not measured.
  const series* find(contender_id subject) const;
};

double median(std::vector<double> values);
double smallest(const std::vector<double>& values);
/// The median over repetitions of numerator / denominator.
double median_ratio(const std::vector<double>& numerator, const std::vector<double>& denominator);

/// Checks each contender's result once, then measures all of them `repetitions` times in turn.
comparison measure(std::vector<team>& teams, const std::vector<contender_id>& contenders,
                   const workload& load, int repetitions);

}  // namespace collectives_bench
