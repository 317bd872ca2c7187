// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <zero/backends/gloo.hpp>
#include <zero/rendezvous/environment.hpp>
#include <zero/rendezvous/interfaces.hpp>
#include <zero/rendezvous/store.hpp>

#include "process_ranks.hpp"

namespace gpt {

any_owner connect_gloo(zero::any_store& store, const zero::launch_environment& launch,
                       const run_settings& settings) {
  zero::gloo_options options;
  options.timeout = options.setup_timeout = timeout_of(settings);
  options.interface = settings.interface;
  if (settings.interface.empty() && !launch.master_address.empty()) {
    // Of several networks, the one through which this host and rank 0's reach each other.
    const std::string address = zero::address_toward(launch.master_address);
    if (!zero::is_loopback_address(address)) options.address = address;
  }
  return std::make_unique<zero::any_communicator>(
      std::make_unique<zero::gloo_communicator>(store, launch.rank, launch.size, options));
}

}  // namespace gpt
