// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch.hpp>

#include <cstdint>
#include <set>
#include <string>

#include "integration/cuda/cuda_training.hpp"

namespace zero::test {

/// What came of training one configuration under many schedules of the device.
struct agreement {
  std::set<std::uint64_t> orders;
  std::uint64_t runs = 0;
  std::uint64_t failures = 0;
  std::string first;  ///< what went wrong first
};

template <class Ranks, class S, class P>
void compare_with_threads(const engine_choice& choice, std::uint64_t seeds, agreement& result) {
  const model_layout layout = device_layout();
  const training_options options{.steps = is_sanitized ? 3U : 10U,
                                 .arguments = {.lr = 0.01, .clip = 0.5},
                                 .gradient = real_gradient};
  for (const int ranks : {2, 3, 4}) {
    const trained_state expected = train(choice, ranks, layout, options);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const simulated_device device(machine_of(seed, Ranks::devices_for(ranks)));
      std::string difference =
          train_on<Ranks, S, P>(ranks, layout, options).difference_from(expected);
      for (const std::string& finding : device.findings()) difference += "; found " + finding;
      result.orders.insert(device.order());
      ++result.runs;
      if (difference.empty()) continue;
      ++result.failures;
      if (result.first.empty()) {
        result.first = name_of(choice) + ", " + std::to_string(ranks) + " ranks, seed " +
                       std::to_string(seed) + ": " + difference;
      }
    }
  }
}

/// All stages of one precision.
template <class Ranks, class P>
agreement compare_all_stages(precision_kind precision, std::uint64_t seeds) {
  agreement result;
  const auto compare = [&]<class S>(stage_kind stage, S) {
    compare_with_threads<Ranks, S, P>({.stage = stage, .precision = precision}, seeds, result);
  };
  compare(stage_kind::stage0, stage0{});
  compare(stage_kind::stage1, stage1{});
  compare(stage_kind::stage2, stage2{});
  compare(stage_kind::stage3, stage3{});
  compare(stage_kind::stage3_keep_gathered, stage3_keep_gathered{});
  return result;
}

/// All stages of one precision over `Ranks` end with the bits of threads, under every schedule.
template <class Ranks, class P>
void check_all_stages(precision_kind precision) {
  const agreement result = compare_all_stages<Ranks, P>(precision, schedule_count());
  WARN(result.runs << " runs, " << result.orders.size() << " different orders, " << result.failures
                   << " failures");
  CHECK(result.first == "");
  CHECK(result.failures == 0);
  CHECK(result.orders.size() >= 100);
}

}  // namespace zero::test
