// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include <zero/error.hpp>

namespace zero {

/// Where a rendezvous failed. Fields that do not apply keep their defaults.
struct rendezvous_failure {
  std::string place;           ///< "file store /scratch/run", "tcp store 10.0.0.1:29500", ...
  std::string key;             ///< the key in question, empty where it is not about one
  double elapsed_seconds = 0;  ///< time spent before it failed
};

/// Ranks could not find each other, or a store between them failed. The text says what to do.
class rendezvous_error : public error {
 public:
  rendezvous_error(const std::string& reason, rendezvous_failure failure)
      : error(describe(reason, failure)), reason_(reason), failure_(std::move(failure)) {}

  /// The cause alone, without the location.
  const std::string& reason() const noexcept { return reason_; }
  const rendezvous_failure& failure() const noexcept { return failure_; }

 private:
  static std::string describe(const std::string& reason, const rendezvous_failure& failure) {
    std::string text = failure.place;
    if (!failure.key.empty()) text += ", key '" + failure.key + "'";
    if (failure.elapsed_seconds > 0) {
      text += ", after " + std::to_string(failure.elapsed_seconds) + " s";
    }
    return text + ": " + reason;
  }

  std::string reason_;
  rendezvous_failure failure_;
};

/// A key, or a rank, was not there at the deadline.
class rendezvous_timeout_error : public rendezvous_error {
 public:
  using rendezvous_error::rendezvous_error;
};

/// Those that met do not belong together: another world size, a rank twice, another run or version.
class rendezvous_mismatch_error : public rendezvous_error {
 public:
  using rendezvous_error::rendezvous_error;
};

}  // namespace zero
