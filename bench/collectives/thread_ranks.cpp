// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <memory>

#include <zero/backends/threads.hpp>

#include "communicator_contender.hpp"
#include "copy_contender.hpp"
#include "worker.hpp"

namespace collectives_bench {

int run_thread_ranks(std::span<const int> channels, shared_barrier& barrier, std::uint64_t bytes) {
  std::atomic<bool> all_served{true};
  zero::run_threads(
      static_cast<int>(channels.size()), [&](zero::threads_communicator& communicator) {
        const rank_place place{communicator.rank(), communicator.size()};
        const memory_block full(bytes);
        const memory_block other(bytes);
        const rank_memory memory{full.data(), other.data()};
        contender_map contenders;
        contenders.emplace(contender_id::threads,
                           std::make_unique<communicator_contender<zero::threads_communicator&>>(
                               communicator, memory));
        contenders.emplace(contender_id::copy,
                           std::make_unique<copy_contender>(place, memory, other.data()));
        const worker self{channels[static_cast<std::size_t>(place.rank)], place,
                          CLOCK_THREAD_CPUTIME_ID, [&] { barrier.wait(); }};
        if (!self.serve(contenders)) all_served = false;
      });
  return all_served ? 0 : 1;
}

}  // namespace collectives_bench
