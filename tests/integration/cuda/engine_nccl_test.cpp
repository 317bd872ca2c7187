// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 300
// links: zero_simulated_device zero_test_engines
#include <catch2/catch.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <zero/backends/nccl.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "integration/cuda/cuda_agreement.hpp"
#include "support/simulated_device/nccl_running_device.hpp"

using namespace zero;
using namespace zero::test;

namespace {

/// A device for each rank, which runs while hosts wait for each other in the store.
struct nccl_ranks {
  using communicator = nccl_communicator;
  static int devices_for(int ranks) { return ranks; }

  template <class Function>
  static std::vector<rank_error> run(int ranks, Function function) {
    const running_device running;
    memory_store store;
    const nccl_options settings{.timeout = std::chrono::seconds(30),
                                .watch_interval = std::chrono::milliseconds(10)};
    return outcomes(ranks, {.timeout = std::chrono::hours(1)}, [&](threads_communicator& thread) {
      simulated_device::name_host_thread(thread.rank());
      const cuda_device_guard guard(thread.rank());
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

}  // namespace

TEST_CASE("engines over NCCL end with the bits of threads where NCCL sums in tree order") {
  const agreement result =
      compare_all_stages<nccl_ranks, bf16_mixed>(precision_kind::bf16_mixed, schedule_count());
  WARN(result.runs << " runs, " << result.orders.size() << " different orders, " << result.failures
                   << " failures");
  CHECK(result.first == "");
  CHECK(result.failures == 0);
  CHECK(result.orders.size() >= 100);
}
