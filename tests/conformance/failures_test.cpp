// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
#include <catch2/catch.hpp>

#include "conformance/backends.hpp"
#include "conformance/communicator_failures.hpp"

using namespace zero::test;

TEMPLATE_TEST_CASE("fault_R3 one rank throws and the others leave with its reason", "",
                   threads_backend, metered_backend, delaying_backend, any_backend) {
  check_throwing_rank<TestType>();
}

TEMPLATE_TEST_CASE("fault_R12 a rank that is late ends the wait of the others", "", threads_backend,
                   delaying_backend, any_backend) {
  check_timeout<TestType>();
}

TEST_CASE("fault_43 a timeout names ranks, operation, sequence number and time") {
  check_timeout<metered_backend>();
}

TEMPLATE_TEST_CASE("fault_41 a rank with fewer batches ends the others at once", "",
                   threads_backend, metered_backend, delaying_backend, any_backend) {
  check_leaving_rank<TestType>();
}

TEMPLATE_TEST_CASE("fault_40 ranks that diverge all get an error that names both sides", "",
                   threads_backend, delaying_backend, any_backend) {
  check_mismatches<TestType>();
}

TEMPLATE_TEST_CASE("abort wakes every rank, any number of times", "", threads_backend,
                   metered_backend, delaying_backend, any_backend) {
  check_abort<TestType>();
}

TEMPLATE_TEST_CASE("after a failure every call throws at once", "", threads_backend,
                   metered_backend, delaying_backend, any_backend) {
  check_poisoned<TestType>();
}
