// SPDX-License-Identifier: Apache-2.0
// timeout: 120
#include <catch2/catch.hpp>

#include "conformance/backends.hpp"
#include "conformance/communicator_contract.hpp"

TEST_CASE("one rank keeps the communicator contract") {
  zero::test::check_contract<zero::test::self_backend>();
}

TEST_CASE("fault_21 a mean divides by the ranks: one rank") {
  zero::test::check_mean<zero::test::self_backend>();
}
