// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
#include <catch2/catch.hpp>

#include "conformance/communicator_failures.hpp"
#include "conformance/shm_backends.hpp"

using namespace zero::test;

using threads = shm_threads<shm_by_default>;
using processes = shm_processes<shm_by_default>;

TEMPLATE_TEST_CASE("fault_R3 one rank throws and those that share its memory leave", "", threads,
                   processes) {
  check_throwing_rank<TestType>();
}

TEMPLATE_TEST_CASE("fault_R12 a late rank ends the wait of those that share its memory", "",
                   threads, processes) {
  check_timeout<TestType>();
}

TEMPLATE_TEST_CASE("fault_41 a rank with fewer batches ends those that share its memory", "",
                   threads, processes) {
  check_leaving_rank<TestType>();
}

TEMPLATE_TEST_CASE("fault_40 ranks that share memory and diverge name both sides", "", threads,
                   processes) {
  check_mismatches<TestType>();
}

TEMPLATE_TEST_CASE("abort wakes all that share memory, any number of times", "", threads,
                   processes) {
  check_abort<TestType>();
}

TEMPLATE_TEST_CASE("after a failure every call of every rank that shares memory throws", "",
                   threads, processes) {
  check_poisoned<TestType>();
}
