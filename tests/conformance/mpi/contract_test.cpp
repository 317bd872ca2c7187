// SPDX-License-Identifier: Apache-2.0
// timeout: 180
// links: zero::mpi
#include <catch2/catch.hpp>

#include <zero/backends/mpi.hpp>
#include <zero/backends/overlapped.hpp>

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

/// Each rank's operations run on a thread of their own.
struct overlapped_mpi : mpi_backend<> {
  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    return mpi_backend<>::run(size, options, [&](mpi_communicator& inner) {
      overlapped comm(inner);
      return function(comm);
    });
  }
};

}  // namespace

TEST_CASE("ranks of MPI keep the communicator contract") {
  if (ran_as_ranks(8)) return;
  any_ranks ranks = erase_ranks<mpi_backend<>>();
  ranks.sizes = {1, 2, 3};
  check_contract(ranks);
  // Ranks that share cores take turns: the large counts of all of them tell nothing new.
  ranks.sizes = {4, 5, 6, 7, 8};
  check_contract(ranks, full_counts() ? usual_contract() : decorator_contract());
}

TEST_CASE("ranks of MPI without checks of the order keep the contract") {
  if (ran_as_ranks(3)) return;
  check_contract<mpi_backend<unchecked_mpi>>(decorator_contract());
}

TEST_CASE("ranks of MPI keep the contract with messages of a few bytes") {
  if (ran_as_ranks(3)) return;
  check_contract<mpi_backend<tiny_messages_mpi>>(decorator_contract());
}

TEST_CASE("overlapped ranks of MPI keep the contract") {
  if (ran_as_ranks(3)) return;
  check_contract<overlapped_mpi>(decorator_contract());
}
