// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 300
// links: zero::gloo
#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

#include "conformance/communicator_contract.hpp"
#include "conformance/gloo_backends.hpp"

using namespace zero::test;

// Every message is a few system calls and a switch between threads, so small ranges are what takes
// time here: the calls back to back are many where ranks are few.

namespace {

contract_options back_to_back(int calls) {
  contract_options options = usual_contract();
  options.back_to_back = full_counts() ? 1000 : calls;
  return options;
}

contract_options small_ranges() {
  contract_options options;
  options.large_elements = std::uint64_t{1} << 11U;
  options.back_to_back = 20;
  return options;
}

struct gloo_pairs : gloo_processes {
  static std::vector<int> sizes() { return {2}; }
};

/// Few numbers of ranks: the paths that differ are the same for all.
template <class Options>
struct few_threads : gloo_threads<Options> {
  static std::vector<int> sizes() { return {2, 3, 5}; }
};

}  // namespace

TEST_CASE("threads connected by Gloo keep the communicator contract") {
  CHECK(contract_violations(erase_ranks<gloo_threads<gloo_by_default>>(), back_to_back(20)) == "");
}

TEST_CASE("many small segments keep the communicator contract") {
  using ranks = few_threads<gloo_in_small_segments>;
  CHECK(contract_violations(erase_ranks<ranks>(), small_ranges()) == "");
}

TEST_CASE("ranks that do not compare their calls keep the communicator contract") {
  using ranks = few_threads<gloo_unchecked>;
  CHECK(contract_violations(erase_ranks<ranks>(), small_ranges()) == "");
}

TEST_CASE("processes connected by Gloo keep the communicator contract") {
  CHECK(contract_violations(erase_ranks<gloo_processes>(), back_to_back(20)) == "");
}

TEST_CASE("two processes connected by Gloo keep the contract for a thousand calls back to back") {
  CHECK(contract_violations(erase_ranks<gloo_pairs>(), back_to_back(1000)) == "");
}
