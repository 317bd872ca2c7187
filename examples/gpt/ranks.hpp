// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include <zero/adapters/any_communicator.hpp>

#include "run_record.hpp"
#include "settings.hpp"

namespace gpt {

/// The ranks of a program: threads that it starts, or processes of which it is one.
class rank_world {
 public:
  virtual ~rank_world() = default;

  /// Whether this process speaks for the run: it hosts rank 0.
  virtual bool is_reporting() const = 0;

  /// Calls `body` on every rank that this process hosts and returns the lowest one's record.
  /// Collective: every process. Throws: zero::error.
  virtual run_record run(const std::function<run_record(zero::any_communicator&)>& body) = 0;
};

/// Fills in what a launcher decides: a run that was started as one of several processes has their
/// number of ranks. `ranks_are_given`: --ranks was on the command line, and then has to agree.
/// Throws: example::usage_failure, zero::rendezvous_error.
void adopt_launch(run_settings& settings, bool ranks_are_given);

/// Connects the ranks by the backend that the settings name: threads, shm, gloo, mpi, or auto,
/// which is threads without a launcher, shm where all processes prove to be on one host, and else
/// gloo. Collective: every process.
/// Throws: example::absent_failure when the backend is not built in; zero::error.
std::unique_ptr<rank_world> open_ranks(const run_settings& settings);

}  // namespace gpt
