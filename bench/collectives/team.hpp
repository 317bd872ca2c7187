// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "contender.hpp"
#include "wire.hpp"

namespace collectives_bench {

/// A folder that goes with its contents when its owner goes.
class temporary_folder {
 public:
  temporary_folder();
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder();

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// One iteration as all ranks saw it.
struct timing {
  double seconds = 0;      ///< of the slowest rank
  double cpu_seconds = 0;  ///< of all ranks together
};

/// The program's side of some ranks. They end when it goes; whoever does not is killed.
class team {
 public:
  /// channels[r] leads to rank r.
  team(team_kind kind, std::vector<descriptor> channels, std::vector<pid_t> processes) noexcept
      : kind_(kind), channels_(std::move(channels)), processes_(std::move(processes)) {}
  team(team&&) noexcept = default;
  team& operator=(team&&) = delete;
  ~team();

  team_kind kind() const noexcept { return kind_; }
  int size() const noexcept { return static_cast<int>(channels_.size()); }

  /// Returns when all ranks have their memory and their connections.
  void await_ready() { collect("to get ready"); }

  /// All ranks do the same. Throws: std::runtime_error that names the rank and what it says.
  timing ask(const request& what);

 private:
  timing collect(const std::string& what);

  team_kind kind_;
  std::vector<descriptor> channels_;
  std::vector<pid_t> processes_;
};

/// Starts ranks whose full ranges hold up to `bytes`. To be called while the program has one
/// thread. Throws: std::system_error, std::runtime_error when ranks do not come.
team start_team(team_kind kind, int size, std::uint64_t bytes, const std::string& folder);

}  // namespace collectives_bench
