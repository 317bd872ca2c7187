// SPDX-License-Identifier: Apache-2.0
#include "process_ranks.hpp"

#include <exception>
#include <string>
#include <utility>

#include <zero/rendezvous/environment.hpp>
#include <zero/rendezvous/open_store.hpp>

#include "program.hpp"

namespace gpt {

namespace {

/// A rank that met the others in a store, which outlives the communicator.
class stored_rank final : public process_rank {
 public:
  stored_rank(const zero::launch_environment& launch, const run_settings& settings)
      : store_(zero::open_store(launch, {.timeout = timeout_of(settings)})) {
    const std::string backend = settings.backend != "auto"                   ? settings.backend
                                : all_share_memory(store_, launch, settings) ? "shm"
                                                                             : "gloo";
    if (backend == "shm") {
      adopt(connect_shm(store_, launch, settings));
    } else {
#ifdef GPT_WITH_GLOO
      adopt(connect_gloo(store_, launch, settings));
#else
      throw example::absent_failure(
          "--backend gloo is not built in: libgloo-dev was not there; it is needed between hosts");
#endif
    }
  }
  ~stored_rank() override {
    leave();
  }

 private:
  zero::any_store store_;
};

}  // namespace

run_record process_rank::run(const std::function<run_record(zero::any_communicator&)>& body) {
  try {
    return body(*communicator_);
  } catch (const std::exception& failure) {
    // The other ranks are told why, before this one's end tells them only that it left.
    communicator_->abort(failure.what());
    throw;
  }
}

void adopt_launch(run_settings& settings, bool ranks_are_given) {
  if (settings.backend == "threads") return;
  const zero::launch_environment launch = zero::from_environment();
  if (settings.backend == "auto" && launch.size == 1) {
    settings.backend = "threads";
    return;
  }
  if (ranks_are_given && settings.ranks != launch.size) {
    const std::string asked = std::to_string(settings.ranks);
    if (launch.launcher == "none") {
      throw example::usage_failure("--backend " + settings.backend + " with --ranks " + asked +
                                   " needs " + asked + " processes: mpirun -n " + asked +
                                   " ..., zero-run -n " + asked +
                                   " ..., or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    }
    throw example::usage_failure("--ranks " + asked + ", but the launcher (" + launch.launcher +
                                 ") started " + std::to_string(launch.size) +
                                 "; leave --ranks out");
  }
  settings.ranks = launch.size;
}

std::unique_ptr<rank_world> open_process_ranks(const run_settings& settings) {
  if (settings.backend == "mpi") {
#ifdef GPT_WITH_MPI
    return open_mpi_ranks(settings);
#else
    throw example::absent_failure("--backend mpi is not built in: no MPI library was there");
#endif
  }
  return std::make_unique<stored_rank>(zero::from_environment(), settings);
}

}  // namespace gpt
