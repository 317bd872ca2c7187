// SPDX-License-Identifier: Apache-2.0
#include "support/communicator_contract.hpp"

#include "conformance/contract_parts.hpp"

namespace zero::test {

std::string contract_violation(any_communicator& communicator, const contract_options& options) {
  return try_contract(communicator, options);
}

std::string contract_violations(const any_ranks& ranks, const contract_options& options) {
  contract_options own_options = options;
  own_options.survives_misuse = ranks.failures.survives_misuse;
  std::string texts;
  for (const int size : ranks.sizes) {
    const auto run = [&](const rank_body& body) {
      const auto outcome = ranks.run(size, long_timeout, body);
      texts += violation_of(size, outcome.failed_rank, [&](int rank) {
        return outcome.errors[static_cast<std::size_t>(rank)];
      });
    };
    run([&](any_communicator& communicator) {
      return require_contract(communicator, own_options);
    });
    for (int which = 0; !own_options.survives_misuse && which < wrong_call_count; ++which) {
      run([which](any_communicator& communicator) {
        return require_empty(misuse_part(communicator, which));
      });
    }
  }
  return texts;
}

}  // namespace zero::test
