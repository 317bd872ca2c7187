// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 180
#include <catch2/catch.hpp>

#include <string>

#include <zero/backends/overlapped.hpp>

#include "conformance/backends.hpp"
#include "conformance/communicator_contract.hpp"
#include "support/communicator_failures.hpp"

using namespace zero;
using namespace zero::test;

namespace {

struct wrap_overlapped {
  template <class Function>
  static auto call(threads_communicator& inner, Function& function) {
    overlapped comm(inner);
    return function(comm);
  }
};

any_ranks overlapped_ranks() {
  return erase_ranks<wrapped_backend<wrap_overlapped>>();
}

}  // namespace

TEST_CASE("overlapped threads keep the communicator contract") {
  check_contract(overlapped_ranks(), decorator_contract());
}

TEST_CASE("fault_R3 one rank throws and the others leave with its reason: overlapped threads") {
  CHECK(throwing_rank_violations(overlapped_ranks()) == "");
}

TEST_CASE("fault_R12 a late rank ends the wait of the others: overlapped threads") {
  CHECK(timeout_violations(overlapped_ranks()) == "");
}

TEST_CASE("fault_41 a rank with fewer batches ends the others at once: overlapped threads") {
  CHECK(leaving_rank_violations(overlapped_ranks()) == "");
}

TEST_CASE("fault_40 ranks that diverge all get an error that names both: overlapped threads") {
  CHECK(divergence_violations(overlapped_ranks()) == "");
}

TEST_CASE("abort wakes every rank of overlapped threads and may be called again") {
  CHECK(abort_violations(overlapped_ranks()) == "");
}

TEST_CASE("after a failure every call of overlapped threads throws at once") {
  CHECK(poisoned_violations(overlapped_ranks()) == "");
}
