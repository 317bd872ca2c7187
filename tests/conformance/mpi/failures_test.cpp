// SPDX-License-Identifier: Apache-2.0
// labels: fault
// timeout: 120
// links: zero::mpi
#include <catch2/catch.hpp>

#include "conformance/communicator_failures.hpp"
#include "support/mpi_ranks.hpp"

using namespace zero::test;

// That MPI_Finalize succeeds after each of these is tested as well: mpirun would complain.

TEST_CASE("fault_R3 one rank throws and the others leave with its reason: ranks of MPI") {
  if (ran_as_ranks(4)) return;
  check_throwing_rank<mpi_backend<>>();
}

TEST_CASE("fault_R12 a rank that is late ends the wait of the others: ranks of MPI") {
  if (ran_as_ranks(4)) return;
  check_timeout<mpi_backend<>>();
}

TEST_CASE("fault_41 a rank with fewer batches ends the others at once: ranks of MPI") {
  if (ran_as_ranks(3)) return;
  check_leaving_rank<mpi_backend<>>();
}

TEST_CASE("fault_40 ranks that diverge all get an error that names both sides: ranks of MPI") {
  if (ran_as_ranks(4)) return;
  check_mismatches<mpi_backend<>>();
}

TEST_CASE("abort wakes every rank of MPI and may be called again") {
  if (ran_as_ranks(3)) return;
  check_abort<mpi_backend<>>();
}

TEST_CASE("after a failure every call of a rank of MPI throws at once") {
  if (ran_as_ranks(2)) return;
  check_poisoned<mpi_backend<>>();
}
