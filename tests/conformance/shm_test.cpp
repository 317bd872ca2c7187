// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 300
#include <catch2/catch.hpp>

#include "conformance/communicator_contract.hpp"
#include "conformance/shm_backends.hpp"

using namespace zero::test;

TEST_CASE("threads that share memory keep the communicator contract") {
  check_contract<shm_threads<shm_by_default>>();
}

TEST_CASE("many small chunks keep the communicator contract") {
  // Each piece is a cache line: large ranges would take thousands of meetings.
  contract_options options;
  options.large_elements = std::uint64_t{1} << 14U;
  CHECK(contract_violations(erase_ranks<shm_threads<shm_in_small_chunks>>(), options) == "");
}

TEST_CASE("ranges in shared memory keep the communicator contract") {
  check_contract<shm_threads<shm_in_shared_memory>>();
}

TEST_CASE("processes that share memory keep the communicator contract") {
  check_contract<shm_processes<shm_by_default>>();
}

TEST_CASE("processes with ranges in shared memory keep the communicator contract") {
  check_contract<shm_processes<shm_in_shared_memory>>();
}
