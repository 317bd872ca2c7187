// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <vector>

#include <zero/backends/nccl.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "integration/cuda/cuda_training.hpp"
#include "support/simulated_device/nccl_running_device.hpp"

// Training over NCCL on the simulated device.

namespace zero::test {

/// A device for each rank, which runs by itself.
struct nccl_ranks {
  using communicator = nccl_communicator;
  static int devices_for(int ranks) { return ranks; }

  /// Calls `function(communicator, queue)` on every rank; how each ended.
  template <class Function>
  static std::vector<rank_error> run(int ranks, Function function,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    const running_device running;
    return run_on_idle(ranks, function, timeout);
  }

  /// The same on a device that runs when hosts wait or look, as its seed says.
  template <class Function>
  static std::vector<rank_error> run_on_idle(int ranks, Function function,
                                             std::chrono::milliseconds timeout) {
    memory_store store;
    const nccl_options settings{.timeout = timeout,
                                .watch_interval = std::chrono::milliseconds(10)};
    return outcomes(ranks, {.timeout = std::chrono::hours(1)}, [&](threads_communicator& thread) {
      const cuda_device_guard guard(thread.rank());
      // From here on a fault may mean it: peers cannot hear of a rank that fails before.
      simulated_device::name_host_thread(thread.rank());
      nccl_communicator comm(store, thread.rank(), ranks, settings);
      const auto call = [&](nccl_communicator& c) {
        unique_cuda_stream stream;
        function(c, cuda_queue(stream));
        c.synchronize(cuda_queue(stream));
      };
      return run_rank(comm, call);
    });
  }
};

/// A device for each rank, which a seed leaves behind its host.
struct idle_nccl_ranks {
  using communicator = nccl_communicator;
  static int devices_for(int ranks) { return ranks; }

  template <class Function>
  static std::vector<rank_error> run(int ranks, Function function) {
    return nccl_ranks::run_on_idle(ranks, function, std::chrono::seconds(30));
  }
};

}  // namespace zero::test
