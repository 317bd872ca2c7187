// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 120
#include <catch2/catch.hpp>

#include "conformance/communicator_contract.hpp"
#include "support/in_process_ranks.hpp"

TEST_CASE("meter, delay and fault around threads, all off, keep the communicator contract") {
  zero::test::check_contract(zero::test::stack_ranks(), zero::test::decorator_contract());
}
