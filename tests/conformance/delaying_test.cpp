// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 120
#include <catch2/catch.hpp>

#include "conformance/communicator_contract.hpp"
#include "support/in_process_ranks.hpp"

TEST_CASE("delayed threads keep the communicator contract") {
  zero::test::check_contract(zero::test::delaying_ranks(), zero::test::decorator_contract());
}
