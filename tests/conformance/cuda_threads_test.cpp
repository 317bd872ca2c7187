// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include "conformance/communicator_contract.hpp"
#include "support/simulated_device/cuda_threads_backend.hpp"

using namespace zero::test;

TEST_CASE("ranks that share a simulated device keep the communicator contract") {
  contract_options options = decorator_contract();
  options.back_to_back = 100;
  CHECK(contract_violations(erase_ranks<cuda_threads_backend>(), options) == "");
}
