// SPDX-License-Identifier: Apache-2.0
#include <zero/backends/mpi.hpp>

#include "process_ranks.hpp"

namespace gpt {

namespace {

class mpi_rank final : public process_rank {
 public:
  explicit mpi_rank(const run_settings& settings) : runtime_(MPI_THREAD_FUNNELED) {
    adopt(std::make_unique<zero::any_communicator>(std::make_unique<zero::mpi_communicator>(
        MPI_COMM_WORLD, zero::mpi_options{.timeout = timeout_of(settings)})));
  }
  ~mpi_rank() override { leave(); }

 private:
  zero::mpi_environment runtime_;
};

}  // namespace

std::unique_ptr<rank_world> open_mpi_ranks(const run_settings& settings) {
  return std::make_unique<mpi_rank>(settings);
}

}  // namespace gpt
