// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch.hpp>

#include "support/any_ranks.hpp"
#include "support/communicator_contract.hpp"

// What every communicator has to do, said once. A backend's file names its fixture and calls
// check_contract from a test case. All of it runs in one world per number of ranks, so that it
// costs backends with processes little.

namespace zero::test {

inline void check_contract(const any_ranks& ranks,
                           const contract_options& options = usual_contract()) {
  CHECK(contract_violations(ranks, options) == "");
}

template <class Backend>
void check_contract(const contract_options& options = usual_contract()) {
  check_contract(erase_ranks<Backend>(), options);
}

}  // namespace zero::test
