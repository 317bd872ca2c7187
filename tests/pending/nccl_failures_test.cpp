// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault simulated_device
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include "conformance/communicator_failures.hpp"
#include "support/simulated_device/nccl_backend.hpp"

using namespace zero::test;

TEST_CASE("a throwing rank ends the world of ranks over simulated NCCL") {
  check_throwing_rank<nccl_backend>();
}

TEST_CASE("a rank that leaves ends the world of ranks over simulated NCCL") {
  check_leaving_rank<nccl_backend>();
}

TEST_CASE("an abort reaches all ranks over simulated NCCL") {
  check_abort<nccl_backend>();
}

TEST_CASE("a failed world of ranks over simulated NCCL refuses every call") {
  check_poisoned<nccl_backend>();
}
