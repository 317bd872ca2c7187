// SPDX-License-Identifier: Apache-2.0
// labels: processes
// timeout: 120
// links: zero::mpi
#include <catch2/catch.hpp>

#include <cstdint>

#include <zero/backends/mpi.hpp>

#include "conformance/communicator_contract.hpp"
#include "support/mpi_ranks.hpp"

using namespace zero;
using namespace zero::test;

namespace {

struct unchecked_mpi {
  static mpi_options options() {
    mpi_options options;
    options.checked_order = false;
    return options;
  }
};

/// Every message is cut, in places that are no multiple of anything.
struct tiny_messages_mpi {
  static mpi_options options() {
    mpi_options options;
    options.segment_bytes = 64;
    options.message_bytes = 77;
    return options;
  }
};

}  // namespace

TEST_CASE("ranks of MPI keep the communicator contract") {
  if (ran_as_ranks(8)) return;
  check_contract<mpi_backend<>>();
}

TEST_CASE("ranks of MPI without checks of the order keep the contract") {
  if (ran_as_ranks(3)) return;
  check_contract<mpi_backend<unchecked_mpi>>();
}

TEST_CASE("ranks of MPI keep the contract with messages of a few bytes") {
  if (ran_as_ranks(3)) return;
  contract_options options = usual_contract();
  options.large_elements = 20'000;
  CHECK(contract_violations(erase_ranks<mpi_backend<tiny_messages_mpi>>(), options) == "");
}
