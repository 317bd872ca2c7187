// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace zero {

namespace detail {

/// The beginning of a file of the system's, without its line end; empty where there is none.
inline std::string system_text(const char* path) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::array<char, 1024> buffer;
  const auto count = ::read(file, buffer.data(), buffer.size());
  ::close(file);
  std::string text(buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Tells apart the kernel's namespaces; "0" where the system has none.
inline std::string namespace_id(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? std::to_string(status.st_ino) : "0";
}

/// Space would end a field of the texts that carry these names.
inline std::string one_word(std::string text) {
  for (char& c : text) {
    if (c == ' ' || c == '\n') c = '_';
  }
  return text.empty() ? "-" : text;
}

}  // namespace detail

/// The name that the system gives itself, for messages.
inline std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "-";
  return detail::one_word(name.data());
}

/// Equal on two ranks exactly if a loopback address of one reaches the other.
///
/// Host names repeat (images that were cloned, containers), so the id of the running kernel is part
/// of it, and so is the network namespace: containers of one kernel have a loopback device each.
inline std::string host_id() {
  return host_name() + '/' +
         detail::one_word(detail::system_text("/proc/sys/kernel/random/boot_id")) + '/' +
         detail::namespace_id("/proc/self/ns/net");
}

/// A process in a form that another process can look up, also after the number was used again.
struct process_identity {
  std::string machine;            ///< kernel and process namespace: where `number` means something
  std::int64_t number = 0;        ///< the process id
  std::uint64_t start_ticks = 0;  ///< when it started, 0 if the system does not say

  bool operator==(const process_identity&) const = default;
};

namespace detail {

/// State letter and start time from /proc/NUMBER/stat.
struct process_status {
  char state = 0;  ///< 0: no such process, or no /proc
  std::uint64_t start_ticks = 0;
};

inline process_status status_of_process(std::int64_t number) {
  const std::string text = system_text(("/proc/" + std::to_string(number) + "/stat").c_str());
  // The second field is the program's name in parentheses, which may hold any character.
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 2 >= text.size()) return {};
  process_status status;
  status.state = text[end_of_name + 2];
  constexpr int fields_after_state = 19;  // field 22 of proc(5); the state is field 3
  std::size_t position = end_of_name + 2;
  for (int field = 0; field < fields_after_state; ++field) {
    position = text.find(' ', position);
    if (position == std::string::npos) return {};
    ++position;
  }
  std::from_chars(text.data() + position, text.data() + text.size(), status.start_ticks);
  return status;
}

}  // namespace detail

inline process_identity this_process() {
  const auto number = static_cast<std::int64_t>(::getpid());
  return {detail::one_word(detail::system_text("/proc/sys/kernel/random/boot_id")) + '/' +
              detail::namespace_id("/proc/self/ns/pid"),
          number, detail::status_of_process(number).start_ticks};
}

/// Whether the process has certainly ended. False for one of another machine: nothing is known.
inline bool has_ended(const process_identity& process, const std::string& this_machine) {
  if (process.machine != this_machine || process.number <= 0) return false;
  if (::kill(static_cast<pid_t>(process.number), 0) != 0 && errno == ESRCH) return true;
  const auto status = detail::status_of_process(process.number);
  if (status.state == 0) return false;
  // A zombie ran no clean-up any more, and a later start is another process under the same number.
  return status.state == 'Z' || status.state == 'X' ||
         (process.start_ticks != 0 && status.start_ticks != process.start_ticks);
}

}  // namespace zero
