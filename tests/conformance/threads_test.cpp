// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 300
#include <catch2/catch.hpp>

#include <string>

#include "conformance/backends.hpp"
#include "conformance/contract_parts.hpp"

using namespace zero::test;

// The one backend whose plain type goes through the contract; the others do behind
// any_communicator, which adds a virtual call and nothing else.
TEST_CASE("ranks as threads keep the communicator contract") {
  std::string texts;
  for (const int size : threads_backend::sizes()) {
    const auto result = threads_backend::run(size, long_timeout, [](auto& communicator) {
      return require_contract(communicator, usual_contract());
    });
    texts += violation_of(size, result.failed_rank(), [&](int rank) { return result.error(rank); });
  }
  CHECK(texts == "");
}
