// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include <zero/rendezvous/detail/posix_files.hpp>
#include <zero/rendezvous/host.hpp>

// Who uses a run's directory: the files "offer" and "hello-..." of file_run.hpp, and what follows
// from them about runs that nobody uses any more.

namespace zero::detail {

/// The content of an offer or a hello.
struct presence {
  int size = 0;
  std::string host;
  process_identity process;

  std::string text() const {
    return "zero-rendezvous 1 " + std::to_string(size) + ' ' + host + ' ' + process.machine + ' ' +
           std::to_string(process.number) + ' ' + std::to_string(process.start_ticks) + '\n';
  }

  static std::optional<presence> parse(const std::string& text) {
    std::istringstream words(text);
    std::string magic;
    int version = 0;
    presence p;
    words >> magic >> version >> p.size >> p.host >> p.process.machine >> p.process.number >>
        p.process.start_ticks;
    if (!words || magic != "zero-rendezvous" || version != 1) return std::nullopt;
    return p;
  }

  std::string describe() const {
    return "process " + std::to_string(process.number) + " on " + host;
  }
};

inline std::optional<presence> read_presence(const std::string& path) {
  constexpr std::size_t longest = 4096;
  const auto text = read_file(path, longest);
  return text ? presence::parse(*text) : std::nullopt;
}

/// Of a process on another host nobody knows, so it counts as living. `machine` is this one.
inline bool lives(const std::optional<presence>& p, const std::string& machine) {
  return p && !has_ended(p->process, machine);
}

inline bool has_living_token(const std::string& run, const std::string& machine) {
  for (const std::string& name : names_in(run)) {
    if (name != "offer" && !name.starts_with("hello-")) continue;
    if (lives(read_presence(run + '/' + name), machine)) return true;
  }
  return false;
}

/// The beginning of the names of directories that processes of this machine have not filled yet.
inline std::string draft_prefix(const std::string& machine) {
  return "draft-" + name_for(machine) + '-';
}

/// A directory that has no token in it yet says by its name whose it is.
inline std::string draft_name(const process_identity& process, const std::string& nonce) {
  return draft_prefix(process.machine) + std::to_string(process.number) + '-' +
         std::to_string(process.start_ticks) + '-' + nonce;
}

inline bool is_stale_draft(const std::string& name, const std::string& machine) {
  const std::string prefix = draft_prefix(machine);
  if (!name.starts_with(prefix)) return false;
  process_identity process{machine, 0, 0};
  const char* const end = name.data() + name.size();
  const auto number = std::from_chars(name.data() + prefix.size(), end, process.number);
  if (number.ec != std::errc{} || number.ptr == end || *number.ptr != '-') return false;
  std::from_chars(number.ptr + 1, end, process.start_ticks);
  return has_ended(process, machine);
}

/// Removes the runs below `parent` whose processes have all ended.
inline void remove_stale_runs(const std::string& parent, const std::string& machine) {
  for (const std::string& name : names_in(parent)) {
    const std::string run = parent + '/' + name;
    if (is_stale_draft(name, machine) ||
        (name.starts_with("run-") && !has_living_token(run, machine))) {
      remove_directory(run);
    }
  }
}

/// The same for every directory of this user below `base` whose name starts with `prefix`: a job
/// that was killed as a whole leaves its directory, and no later one comes to the same name.
inline void remove_abandoned_directories(const std::string& base, const std::string& prefix,
                                         const std::string& machine) noexcept {
  try {
    for (const std::string& name : names_in(base)) {
      const std::string path = base + '/' + name;
      if (!name.starts_with(prefix) || !check_own_directory(path)) continue;
      remove_stale_runs(path, machine);
      remove_own_directory(path);
    }
  } catch (...) {
    // Tidying up after others is no reason to fail.
  }
}

}  // namespace zero::detail
