// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "measure.hpp"

namespace collectives_bench {

/// A ratio of two contenders at one workload, and what it should be.
struct target {
  std::string what;
  double limit = 1;
  bool is_at_least = true;  ///< whether the ratio should be at least the limit, or at most
  double by_median = 0;     ///< the median over repetitions of the ratio
  double by_best = 0;       ///< the ratio of the best repetitions

  bool is_met() const noexcept { return is_at_least ? by_median >= limit : by_median <= limit; }
};

/// The targets that this comparison says something about: none below 64 MiB.
std::vector<target> targets_of(const comparison& compared);

}  // namespace collectives_bench
