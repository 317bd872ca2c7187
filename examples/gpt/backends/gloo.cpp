// SPDX-License-Identifier: Apache-2.0
#include <zero/backends/gloo.hpp>
#include <zero/rendezvous/environment.hpp>
#include <zero/rendezvous/store.hpp>

#include "process_ranks.hpp"

namespace gpt {

any_owner connect_gloo(zero::any_store& store, const zero::launch_environment& launch,
                       const run_settings& settings) {
  zero::gloo_options options;
  options.timeout = options.setup_timeout = timeout_of(settings);
  options.interface = settings.interface;
  return std::make_unique<zero::any_communicator>(
      std::make_unique<zero::gloo_communicator>(store, launch.rank, launch.size, options));
}

}  // namespace gpt
