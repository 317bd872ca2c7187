// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch.hpp>

#include "support/any_ranks.hpp"
#include "support/communicator_failures.hpp"

// The failures of support/communicator_failures.hpp for a backend's fixture, one function a test
// case.

namespace zero::test {

template <class Backend>
void check_throwing_rank() {
  CHECK(throwing_rank_violations(erase_ranks<Backend>()) == "");
}
template <class Backend>
void check_leaving_rank() {
  CHECK(leaving_rank_violations(erase_ranks<Backend>()) == "");
}
template <class Backend>
void check_timeout() {
  CHECK(timeout_violations(erase_ranks<Backend>()) == "");
}
template <class Backend>
void check_mismatches() {
  CHECK(divergence_violations(erase_ranks<Backend>()) == "");
}
template <class Backend>
void check_abort() {
  CHECK(abort_violations(erase_ranks<Backend>()) == "");
}
template <class Backend>
void check_poisoned() {
  CHECK(poisoned_violations(erase_ranks<Backend>()) == "");
}

}  // namespace zero::test
