// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
// links: zero::gloo
#include <catch2/catch.hpp>

#include "conformance/communicator_failures.hpp"
#include "conformance/gloo_backends.hpp"

using namespace zero::test;

namespace {

using ranks = gloo_threads<gloo_by_default>;

}  // namespace

TEST_CASE("fault_R3 Gloo: one rank throws and the others leave with its reason") {
  check_throwing_rank<ranks>();
}

TEST_CASE("fault_R12 Gloo: a rank that is late ends the wait of the others") {
  check_timeout<ranks>();
}

TEST_CASE("fault_41 Gloo: a rank with fewer batches ends the others at once") {
  check_leaving_rank<ranks>();
}

TEST_CASE("fault_40 Gloo: ranks that diverge all get an error that names both sides") {
  check_mismatches<ranks>();
}

TEST_CASE("Gloo: abort wakes every rank, any number of times") {
  check_abort<ranks>();
}

TEST_CASE("Gloo: after a failure every call throws at once") {
  check_poisoned<ranks>();
}

TEST_CASE("fault_R3 Gloo: a process that throws ends the others with its reason") {
  check_throwing_rank<gloo_processes>();
}

TEST_CASE("fault_R12 Gloo: a process that is late ends the wait of the others") {
  check_timeout<gloo_processes>();
}
