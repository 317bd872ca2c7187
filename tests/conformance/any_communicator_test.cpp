// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 300
#include <catch2/catch.hpp>

#include "conformance/backends.hpp"
#include "conformance/communicator_contract.hpp"

TEST_CASE("type-erased threads keep the communicator contract") {
  zero::test::check_contract<zero::test::any_backend>();
}

TEST_CASE("fault_21 a mean divides by the ranks: type-erased threads") {
  zero::test::check_mean<zero::test::any_backend>();
}
