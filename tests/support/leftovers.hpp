// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <set>
#include <string>

namespace zero::test {

/// What a run of processes must not leave behind: taken before it, compared after it.
///
/// Seen are the library's files and shared-memory segments in /dev/shm, the temporary folder and
/// XDG_RUNTIME_DIR, and this process's open descriptors, listening ports and threads. Other
/// programs of the host may make such files meanwhile, so one counts only if it stays for as long
/// as `patience`.
class leftovers {
 public:
  leftovers();

  /// What is here now and was not before, one a line; empty when nothing is. `group` is the process
  /// group of the run, 0 for none; its ranks have to be reaped.
  std::string found(pid_t group = 0,
                    std::chrono::milliseconds patience = std::chrono::seconds(30)) const;

 private:
  struct snapshot {
    std::set<std::string> files;
    std::set<std::string> descriptors;  ///< number and target of each
    std::size_t threads = 0;
  };
  static snapshot now();
  std::string difference(const std::set<std::string>& files) const;

  snapshot before_;
};

/// The TCP ports on which sockets of this process listen.
std::set<int> own_listening_ports();

}  // namespace zero::test
