// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device slow
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>

#include "unit/backends/cuda_threads_ranks.hpp"

using namespace zero;
using namespace zero::test;

TEST_CASE("every wait of every collective matters: without it some seed goes wrong") {
  std::string harmless;
  int dropped = 0;
  for (const int size : {2, 3}) {
    for (const collective operation : ordered_operations) {
      for (int rank = 0; rank < 2; ++rank) {
        std::uint64_t waits = 0;
        {
          simulated_device device(machine_of(0));
          goes_wrong(size, operation);
          waits = device.waits(rank);
        }
        for (std::uint64_t k = 0; k < waits; ++k) {
          bool matters = false;
          for (std::uint64_t seed = 0; seed < 400 && !matters; ++seed) {
            simulated_device device(machine_of(seed));
            device.drop_wait(k, rank);
            matters = goes_wrong(size, operation);
          }
          ++dropped;
          if (matters) continue;
          harmless += "N = " + std::to_string(size) + ", " + std::string(name_of(operation)) +
                      ", rank " + std::to_string(rank) + ": wait " + std::to_string(k) + " of " +
                      std::to_string(waits) + "\n";
        }
      }
    }
  }
  WARN(dropped << " waits were taken away, one at a time");
  CHECK(harmless == "");
}
