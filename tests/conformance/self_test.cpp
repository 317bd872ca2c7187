// SPDX-License-Identifier: Apache-2.0
// timeout: 120
#include <catch2/catch.hpp>

#include "conformance/communicator_contract.hpp"
#include "support/in_process_ranks.hpp"

TEST_CASE("one rank keeps the communicator contract") {
  zero::test::check_contract(zero::test::self_ranks());
}
