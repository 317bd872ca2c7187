// SPDX-License-Identifier: Apache-2.0
#include <zero/backends/shm.hpp>
#include <zero/rendezvous/environment.hpp>
#include <zero/rendezvous/store.hpp>

#include "process_ranks.hpp"

namespace gpt {

any_owner connect_shm(zero::any_store& store, const zero::launch_environment& launch,
                      const run_settings& settings) {
  const zero::shm_options options{.timeout = timeout_of(settings),
                                  .setup_timeout = timeout_of(settings)};
  return std::make_unique<zero::any_communicator>(
      std::make_unique<zero::shm_communicator>(store, launch.rank, launch.size, options));
}

bool all_share_memory(zero::any_store& store, const zero::launch_environment& launch,
                      const run_settings& settings) {
  return zero::shm_host_is_shared(store, launch.rank, launch.size,
                                  zero::deadline_in(timeout_of(settings)));
}

}  // namespace gpt
