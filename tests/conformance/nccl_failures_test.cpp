// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault simulated_device
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include "conformance/communicator_failures.hpp"
#include "support/simulated_device/nccl_backend.hpp"

using namespace zero::test;

// Ranks that compare their calls meet on the host and fail there. The others meet on the device, so
// that a failure is found by who waits for it.

TEST_CASE("a throwing rank ends the world of ranks over simulated NCCL") {
  check_throwing_rank<nccl_backend>();
  check_throwing_rank<unchecked_nccl_backend>();
}

TEST_CASE("a rank that leaves ends the world of ranks over simulated NCCL") {
  check_leaving_rank<nccl_backend>();
  check_leaving_rank<unchecked_nccl_backend>();
}

TEST_CASE("a late rank ends the wait of ranks over simulated NCCL that compare their calls") {
  check_timeout<nccl_backend>();
}

TEST_CASE("an abort reaches all ranks over simulated NCCL") {
  check_abort<nccl_backend>();
  check_abort<unchecked_nccl_backend>();
}

TEST_CASE("a failed world of ranks over simulated NCCL refuses every call") {
  check_poisoned<nccl_backend>();
  check_poisoned<unchecked_nccl_backend>();
}
