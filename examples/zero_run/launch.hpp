// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace zero_run {

struct launch_options {
  int ranks = 1;
  std::vector<std::string> command;             ///< program and arguments, the same for all ranks
  std::optional<std::chrono::seconds> timeout;  ///< after it all ranks are ended
  std::chrono::seconds grace{3};                ///< between SIGTERM and SIGKILL
};

/// What the launcher itself exits with when the time is up, as timeout(1) does.
inline constexpr int timeout_status = 124;
/// What a shell says when a program cannot be started.
inline constexpr int not_started_status = 127;

/// Starts the ranks and returns when all have ended: 0, or the status of the first that failed
/// (128 + signal for one that a signal ended). When one fails, the others are ended.
/// Throws: std::system_error where the system has no process or port left.
int launch(const launch_options& options);

}  // namespace zero_run
