// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/backends/cuda_threads.hpp>
#include <zero/backends/threads.hpp>

#include "support/run_rank.hpp"
#include "support/simulated_device/host_view.hpp"
#include "support/simulated_device/kernels.hpp"
#include "support/simulated_device/simulated_device.hpp"

namespace zero::test {

/// cuda_threads on the simulated device, as a fixture of tests/conformance.
struct cuda_threads_backend {
  static std::string name() { return "cuda_threads"; }
  static std::vector<int> sizes() { return {1, 2, 3, 4, 5, 6, 7, 8}; }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    const simulated_device device({.seed = static_cast<std::uint64_t>(size),
                                   .devices = 1,
                                   .patience = std::chrono::seconds(20)});
    const cuda_threads_world world(size, {.timeout = options.timeout, .devices = {0}});
    return try_run_threads(size, long_threads(), [&](threads_communicator& thread) {
      simulated_device::name_host_thread(thread.rank());
      host_view view(cuda_threads_communicator(world, thread.rank()));
      return run_rank(view, function);
    });
  }

 private:
  /// Only the threads of the outer world are used, none of its collectives.
  static threads_options long_threads() { return {.timeout = std::chrono::hours(1)}; }
};

}  // namespace zero::test
