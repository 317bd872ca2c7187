// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <utility>

#include <zero/backends/shm.hpp>
#include <zero/rendezvous/file_store.hpp>
#include <zero/rendezvous/store.hpp>

#include "communicator_contender.hpp"
#include "socket_contender.hpp"
#include "worker.hpp"

namespace collectives_bench {

int run_process_rank(int channel, rank_place place, shared_barrier& barrier,
                     const std::string& folder, std::uint64_t bytes) {
  const memory_block full(bytes);
  const memory_block shard(bytes / static_cast<std::uint64_t>(place.size));
  const rank_memory memory{full.data(), shard.data()};
  auto store = zero::any_store::make<zero::file_store>(folder + "/ranks", place.rank, place.size);

  zero::shm_communicator in_private_memory(store, place.rank, place.size);
  zero::shm_communicator in_shared_memory(store, place.rank, place.size);
  const zero::shm_memory shared = in_shared_memory.shared_memory(bytes);

  contender_map contenders;
  contenders.emplace(
      contender_id::shm_private,
      std::make_unique<communicator_contender<zero::shm_communicator&>>(in_private_memory, memory));
  contenders.emplace(contender_id::shm_shared,
                     std::make_unique<communicator_contender<zero::shm_communicator&>>(
                         in_shared_memory, rank_memory{shared.data(), shard.data()}));
  contenders.emplace(contender_id::sockets,
                     std::make_unique<socket_contender>(
                         place, memory, connect_loopback(store, place, std::chrono::seconds(60))));
#ifdef BENCH_HAS_GLOO
  add_gloo_contenders(contenders, place, memory, store);
#endif
  const worker self{channel, place, CLOCK_PROCESS_CPUTIME_ID, [&] { barrier.wait(); }};
  return self.serve(contenders) ? 0 : 1;
}

}  // namespace collectives_bench
