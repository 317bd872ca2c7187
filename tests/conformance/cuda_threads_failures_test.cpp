// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault simulated_device
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include "conformance/communicator_failures.hpp"
#include "support/simulated_device/cuda_threads_backend.hpp"

using namespace zero::test;

TEST_CASE("a throwing rank ends the world of ranks that share a simulated device") {
  check_throwing_rank<cuda_threads_backend>();
}

TEST_CASE("a rank that leaves ends the world of ranks that share a simulated device") {
  check_leaving_rank<cuda_threads_backend>();
}

TEST_CASE("a late rank ends the wait of ranks that share a simulated device") {
  check_timeout<cuda_threads_backend>();
}

TEST_CASE("ranks that share a simulated device name the calls that differ") {
  check_mismatches<cuda_threads_backend>();
}

TEST_CASE("an abort reaches all ranks that share a simulated device") {
  check_abort<cuda_threads_backend>();
}

TEST_CASE("a failed world of ranks that share a simulated device refuses every call") {
  check_poisoned<cuda_threads_backend>();
}
