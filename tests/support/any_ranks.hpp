// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/threads.hpp>

// Ranks of a backend without the backend's type, so that the contract is compiled once.

namespace zero::test {

/// What a rank does; it returns "" or a text, or throws.
using rank_body = std::function<std::string(any_communicator&)>;

/// Where backends may differ in the way they fail. A fixture with other values states them, and
/// why, as `static constexpr failure_traits failures`.
struct failure_traits {
  /// Ranks that call different collectives all get a mismatch_error that names both calls. False:
  /// the transport cannot see it, the calls never meet, and every rank gets a timeout_error or an
  /// aborted_error that names the operation.
  bool names_divergence = true;
  /// A rank that comes after its peers' deadline gets an aborted_error with their text. False: it
  /// learns that its peers gave up, and not why.
  bool tells_the_late_rank_why = true;
  /// A usage_error leaves the communicator usable. False: calls wait in a queue, and what one of
  /// them throws ends the queue.
  bool survives_misuse = true;
  /// A deadline that the backend keeps and that ranks which do not sleep do not miss.
  std::chrono::milliseconds short_timeout{200};
};

/// How the ranks of one run ended.
struct any_outcome {
  std::vector<std::string> texts;  ///< what they returned; empty when a rank failed
  std::vector<std::exception_ptr> errors;
  int failed_rank = -1;
};

/// A fixture of tests/conformance without its type.
struct any_ranks {
  std::string backend;
  std::vector<int> sizes;
  failure_traits failures;
  std::function<any_outcome(int size, threads_options options, const rank_body& body)> run;
};

template <class Backend>
any_ranks erase_ranks() {
  any_ranks erased;
  erased.backend = Backend::name();
  erased.sizes = Backend::sizes();
  if constexpr (requires { Backend::failures; }) erased.failures = Backend::failures;
  erased.run = [](int size, threads_options options, const rank_body& body) {
    auto result = Backend::run(size, options, [&body](auto& communicator) {
      if constexpr (std::is_same_v<decltype(communicator), any_communicator&>) {
        return body(communicator);
      } else {
        any_communicator any(communicator);
        return body(any);
      }
    });
    any_outcome outcome;
    outcome.failed_rank = result.failed_rank();
    for (int rank = 0; rank < size; ++rank) outcome.errors.push_back(result.error(rank));
    if (outcome.failed_rank < 0) outcome.texts = std::move(result).values();
    return outcome;
  };
  return erased;
}

}  // namespace zero::test
