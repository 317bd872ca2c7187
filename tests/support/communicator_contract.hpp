// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <zero/adapters/any_communicator.hpp>

#include "support/any_ranks.hpp"
#include "support/rank_runner.hpp"

namespace zero::test {

/// How much of the contract a build can afford.
struct contract_options {
  std::uint64_t large_elements = std::uint64_t{1} << 20U;
  int back_to_back = 1000;
  bool splits = true;
  bool survives_misuse = true;  ///< as failure_traits has it
};

inline contract_options usual_contract() {
  contract_options options;
#ifdef ZERO_TEST_REDUCED
  options.large_elements = std::uint64_t{1} << 16U;
#endif
  if (full_counts()) options.large_elements = std::uint64_t{1} << 24U;
  return options;
}

/// For decorators that pass ranges on as they are: large ones tell nothing new.
inline contract_options decorator_contract() {
  return {.large_elements = std::uint64_t{1} << 14U};
}

/// "" when the ranks of every size keep the contract, else one line for each size that does not.
std::string contract_violations(const any_ranks& ranks, const contract_options& options);

/// The contract inside a rank, for a program that has its ranks already: "" or what is broken.
/// Collective. A rank that sees a violation stops there, so its peers have to be told.
std::string contract_violation(any_communicator& communicator, const contract_options& options);

}  // namespace zero::test
