// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

// A test of the MPI backend is run twice: by ctest, where it starts mpirun with this very program
// and its own name, and as a rank of that job, where it does what the test is about. The ranks are
// programs of their own, so each may use Catch's macros; results are gathered on all of them.

namespace zero::test {

/// How a job of mpirun ended.
struct mpi_job {
  int exit_code = -1;  ///< of mpirun; 128 + the signal when one ended it
  bool is_overdue = false;
  std::string output;
  std::chrono::steady_clock::time_point ended;
};

/// Runs `mpirun -n ranks` with this program and these arguments, and ends it at the limit. The
/// settings NAME=VALUE are added to the ranks' environment.
mpi_job launch_mpi(int ranks, const std::vector<std::string>& arguments,
                   std::chrono::seconds limit = std::chrono::seconds(100),
                   const std::vector<std::string>& settings = {});

/// Whether this process is a rank that launch_mpi started.
bool is_launched_rank();

}  // namespace zero::test
