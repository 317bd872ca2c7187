// SPDX-License-Identifier: Apache-2.0
// labels: fault
// timeout: 1800
// links: zero::gloo
#include <catch2/catch.hpp>

#include <zero/backends/gloo.hpp>

#include "support/process_faults_cases.hpp"

using namespace zero::test;

namespace {

process_ranks ranks() {
  return ranks_of<zero::gloo_communicator, zero::gloo_options>();
}

}  // namespace

TEST_CASE("R1 gloo: the peers of a killed rank learn who and where within a second") {
  check_kills(ranks());
}

TEST_CASE("R2 gloo: a rank that stops ends the others at the deadline, or the run goes on") {
  check_stops(ranks());
}

TEST_CASE("R9 gloo: ranks that disagree all learn in what before any payload moves") {
  check_disagreements(ranks());
}
