// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace zero {

/// Base of everything that can go wrong while a correct program runs: peers, networks, devices.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A broken precondition: the program itself has to change. The text carries the values.
class usage_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Where and when a collective failed. Fields that are not known keep their defaults.
struct communicator_failure {
  std::string backend;          ///< "threads", "gloo", ...
  int rank = -1;                ///< the rank that reports
  int peer = -1;                ///< the rank that is to blame, if known
  std::string operation;        ///< "reduce_scatter", "all_gather", ...
  std::uint64_t sequence = 0;   ///< number of the collective on this communicator, from 0
  double elapsed_seconds = 0;   ///< time spent in the operation before it failed
};

/// A collective did not succeed; the communicator is poisoned and every later call throws at once.
class communicator_error : public error {
 public:
  communicator_error(const std::string& reason, communicator_failure failure)
      : error(describe(reason, failure)), reason_(reason), failure_(std::move(failure)) {}

  /// The cause alone, without the location.
  const std::string& reason() const noexcept { return reason_; }
  const communicator_failure& failure() const noexcept { return failure_; }

 private:
  static std::string describe(const std::string& reason, const communicator_failure& failure) {
    std::string text = failure.backend + " rank " + std::to_string(failure.rank);
    if (!failure.operation.empty()) {
      text += ", " + failure.operation + " #" + std::to_string(failure.sequence);
    }
    if (failure.peer >= 0) text += ", peer " + std::to_string(failure.peer);
    if (failure.elapsed_seconds > 0) {
      text += ", after " + std::to_string(failure.elapsed_seconds) + " s";
    }
    return text + ": " + reason;
  }

  std::string reason_;
  communicator_failure failure_;
};

/// A peer did not arrive before the deadline.
class timeout_error : public communicator_error {
 public:
  using communicator_error::communicator_error;
};

/// Ranks disagree about the operation, its type, its count, or about the model and its options.
class mismatch_error : public communicator_error {
 public:
  using communicator_error::communicator_error;
};

/// Another rank (or an earlier failure on this one) aborted the communicator.
class aborted_error : public communicator_error {
 public:
  using communicator_error::communicator_error;
};

}  // namespace zero
