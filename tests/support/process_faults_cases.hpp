// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/process_faults.hpp"
#include "support/rank_runner.hpp"

// The rows of the scorecard for one backend, in the number that the build asks for. The seed of a
// sample is Catch's: `--rng-seed`.

namespace zero::test {

/// `count` of the runs, all of them under ZERO_FULL=1.
inline std::vector<struck_run> chosen_runs(std::vector<struck_run> runs, std::size_t count) {
  return full_counts() ? runs : sample_of(std::move(runs), count, Catch::rngSeed());
}

/// The runs in which a rank is stopped: not before it has a communicator.
inline std::vector<struck_run> stoppable_runs() {
  auto runs = all_struck_runs();
  std::erase_if(runs, [](const struck_run& run) {
    return run.where.phase == "rendezvous" || run.where.phase == "connected";
  });
  return runs;
}

inline void check_kills(const process_ranks& ranks) {
  const auto runs = chosen_runs(all_struck_runs(), 13);
  INFO("seed " << Catch::rngSeed());
  for (const struck_run& run : runs) CHECK(kill_violations(ranks, run) == "");
  WARN("R1, " << ranks.backend << ": " << runs.size() << " kills");
}

inline void check_stops(const process_ranks& ranks) {
  const std::size_t count = full_counts() ? 30 : 3;
  INFO("seed " << Catch::rngSeed());
  for (const struck_run& run : sample_of(stoppable_runs(), count, Catch::rngSeed())) {
    CHECK(long_stop_violations(ranks, run) == "");
  }
  for (const struck_run& run : sample_of(stoppable_runs(), count, Catch::rngSeed() + 1)) {
    CHECK(short_stop_violations(ranks, run) == "");
  }
  WARN("R2, " << ranks.backend << ": " << count << " long and " << count << " short stops");
}

inline void check_disagreements(const process_ranks& ranks) {
  std::size_t count = 0;
  for (const std::string& kind : disagreements()) {
    for (const int size : {2, 4}) {
      CHECK(disagreement_violations(ranks, kind, size) == "");
      ++count;
    }
  }
  WARN("R9, " << ranks.backend << ": " << count << " disagreements");
}

}  // namespace zero::test
