// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <vector>

#include <zero/backends/cuda_threads.hpp>

#include "support/cuda_training.hpp"

#if defined(ZERO_TEST_SIMULATED)
#include "support/simulated_device/kernels.hpp"
#include "support/simulated_device/simulated_device.hpp"
#endif

namespace zero::test {

/// Ranks that share device 0, for train_on().
struct device_ranks {
  using communicator = cuda_threads_communicator;

  template <class Function>
  static std::vector<rank_error> run(int ranks, Function function) {
    return run_cuda_threads(ranks, std::chrono::seconds(60), begin, function);
  }

 private:
  static void begin([[maybe_unused]] int rank) {
#if defined(ZERO_TEST_SIMULATED)
    simulated_device::name_host_thread(rank);
#endif
  }
};

}  // namespace zero::test
