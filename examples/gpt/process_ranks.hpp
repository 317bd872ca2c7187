// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <zero/adapters/any_communicator.hpp>

#include "ranks.hpp"
#include "settings.hpp"

// Ranks that are processes. Each backend is a file of backends/, built where its library is found.

namespace zero {
class any_store;
struct launch_environment;
}  // namespace zero

namespace gpt {

std::unique_ptr<rank_world> open_process_ranks(const run_settings& settings);

/// A backend's communicator. Collective: every process.
using any_owner = std::unique_ptr<zero::any_communicator>;
any_owner connect_shm(zero::any_store& store, const zero::launch_environment& launch,
                      const run_settings& settings);
any_owner connect_gloo(zero::any_store& store, const zero::launch_environment& launch,
                       const run_settings& settings);

/// Whether all processes can share memory. Collective: every process.
bool all_share_memory(zero::any_store& store, const zero::launch_environment& launch,
                      const run_settings& settings);

/// MPI needs no store, and its runtime ends with the world.
std::unique_ptr<rank_world> open_mpi_ranks(const run_settings& settings);

/// One process's rank of a world whose communicator is `communicator`.
class process_rank : public rank_world {
 public:
  bool is_reporting() const override { return communicator_->rank() == 0; }
  run_record run(const std::function<run_record(zero::any_communicator&)>& body) override;

 protected:
  void adopt(any_owner communicator) noexcept { communicator_ = std::move(communicator); }
  void leave() noexcept { communicator_.reset(); }

 private:
  any_owner communicator_;
};

}  // namespace gpt
