// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <zero/backends/cuda_threads.hpp>

#include "support/cuda_training.hpp"
#include "support/simulated_device/kernels.hpp"
#include "support/simulated_device/simulated_device.hpp"

// Training on the simulated device, compared with training over threads.

namespace zero::test {

/// Schedules of the device that a configuration is trained under.
inline std::uint64_t schedule_count() {
  return full_counts() ? 500 : (is_sanitized ? 8 : 50);
}

inline simulated_device_options machine_of(std::uint64_t seed, int devices = 1) {
  return {.seed = seed, .devices = devices, .patience = std::chrono::seconds(20)};
}

/// Ranks that share one device.
struct cuda_threads_ranks {
  using communicator = cuda_threads_communicator;
  static int devices_for(int /*ranks*/) { return 1; }

  /// Calls `function(communicator, queue)` on every rank; how each ended.
  template <class Function>
  static std::vector<rank_error> run(int ranks, Function function,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    return run_cuda_threads(ranks, timeout, simulated_device::name_host_thread, function);
  }
};

template <class Function>
std::vector<rank_error> on_cuda_threads(int ranks, Function function) {
  return cuda_threads_ranks::run(ranks, function);
}

}  // namespace zero::test
