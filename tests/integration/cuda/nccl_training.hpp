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

/// A device for each rank, which runs while hosts wait for each other in the store.
struct nccl_ranks {
  using communicator = nccl_communicator;
  static int devices_for(int ranks) { return ranks; }

  /// Calls `function(communicator, queue)` on every rank; how each ended.
  template <class Function>
  static std::vector<rank_error> run(int ranks, Function function,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    const running_device running;
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

}  // namespace zero::test
