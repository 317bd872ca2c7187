// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 120
#include <catch2/catch.hpp>

#include "conformance/backends.hpp"
#include "conformance/communicator_contract.hpp"

TEST_CASE("metered threads keep the communicator contract") {
  zero::test::check_decorator_contract<zero::test::metered_backend>();
}

TEST_CASE("fault_21 a mean divides by the ranks: metered threads") {
  zero::test::check_mean<zero::test::metered_backend>();
}
