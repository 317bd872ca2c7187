// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
#include <catch2/catch.hpp>

#include <vector>

#include "support/communicator_failures.hpp"
#include "support/in_process_ranks.hpp"

using namespace zero::test;

namespace {

/// Threads behind any_communicator, and the decorators that have a say in how a call fails.
std::vector<any_ranks> backends() {
  return {threads_ranks(), metered_ranks(), delaying_ranks()};
}

}  // namespace

TEST_CASE("fault_R3 one rank throws and the others leave with its reason") {
  for (const any_ranks& ranks : backends()) CHECK(throwing_rank_violations(ranks) == "");
}

TEST_CASE("fault_43 R12 a late rank ends the wait, the error names ranks, operation and time") {
  for (const any_ranks& ranks : backends()) CHECK(timeout_violations(ranks) == "");
}

TEST_CASE("fault_41 a rank with fewer batches ends the others at once") {
  for (const any_ranks& ranks : backends()) CHECK(leaving_rank_violations(ranks) == "");
}

TEST_CASE("fault_40 ranks that diverge all get an error that names both sides") {
  for (const any_ranks& ranks : backends()) CHECK(divergence_violations(ranks) == "");
}

TEST_CASE("abort wakes every rank, any number of times") {
  for (const any_ranks& ranks : backends()) CHECK(abort_violations(ranks) == "");
}

TEST_CASE("after a failure every call throws at once") {
  for (const any_ranks& ranks : backends()) CHECK(poisoned_violations(ranks) == "");
}
