// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/rendezvous/store.hpp>

#include "support/process_training.hpp"

// Faults that strike real processes, for any backend whose ranks meet in a store: the rows of the
// reliability scorecard. Every function returns "" or what was not as it has to be, a line each.

namespace zero::test {

struct process_timeouts {
  std::chrono::milliseconds operation{20000};
  std::chrono::milliseconds setup{20000};
};

/// A backend of processes without its type.
struct process_ranks {
  std::string backend;
  std::function<any_communicator(any_store& store, int rank, int size, process_timeouts timeouts)>
      make;
};

template <class C, class Options>
process_ranks ranks_of() {
  return {std::string(C::backend_name()),
          [](any_store& store, int rank, int size, process_timeouts timeouts) {
            Options options;
            options.timeout = timeouts.operation;
            options.setup_timeout = timeouts.setup;
            return any_communicator(std::make_unique<C>(store, rank, size, options));
          }};
}

/// A rank's store and communicator, which may refer to the store.
struct met_rank {
  std::unique_ptr<any_store> store;
  any_communicator communicator;
  void abort(std::string_view reason) noexcept { communicator.abort(reason); }
};

// --- R1, R2: a rank dies or stops in the middle of a training ------------------------------------

/// Where a training is struck.
struct strike {
  std::string phase;
  std::optional<run_point> point;  ///< none: after the store, before the communicator
};
/// The phases of a stage's run: rendezvous, connected, fingerprint, broadcast, gather (stage 3),
/// reduce first, middle and last, flag and norm, update, parameter gather, idle.
std::vector<strike> strikes_of(int stage);

struct struck_run {
  strike where;
  int stage = 0;
  int size = 2;
  int victim = 0;
  std::string name() const;
};
/// Every strike in every stage, N = 2, 3, 4, the victim the first or the last rank.
std::vector<struck_run> all_struck_runs();
/// `count` of them, in which every phase occurs if count allows it.
std::vector<struck_run> sample_of(std::vector<struck_run> runs, std::size_t count,
                                  std::uint64_t seed);

/// R1: the victim is killed. Its peers get, within a second, a typed error that names it, the
/// operation and its number.
std::string kill_violations(const process_ranks& ranks, const struck_run& run);
/// R2: the victim stops for longer than the timeout. Its peers get a timeout error a second after
/// the timeout at the latest; the victim gets an error when it goes on.
std::string long_stop_violations(const process_ranks& ranks, const struck_run& run);
/// R2: the victim stops for less than the timeout. The run ends as one without a stop, bit for bit.
std::string short_stop_violations(const process_ranks& ranks, const struck_run& run);

// --- R9: ranks that were built from different descriptions ---------------------------------------

/// The kinds of disagreement, each with what the error has to say.
std::vector<std::string> disagreements();
/// All ranks get the same mismatch error before any payload moves.
std::string disagreement_violations(const process_ranks& ranks, const std::string& kind, int size);

}  // namespace zero::test
