// SPDX-License-Identifier: Apache-2.0
#include "support/leftovers.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

namespace zero::test {

namespace {

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const opened = ::opendir(folder.c_str());
  if (opened == nullptr) return names;
  while (const dirent* entry = ::readdir(opened)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(opened);
  return names;
}

/// Whether this user's file looks like one of the library's or, in /dev/shm, like one that nobody
/// else would make: launchers and Python name theirs.
bool is_suspect(const std::string& folder, const std::string& name) {
  struct stat status {};
  if (::lstat((folder + "/" + name).c_str(), &status) != 0) return false;  // gone meanwhile
  if (status.st_uid != ::geteuid()) return false;
  if (name.find("zero_test_") == 0) return false;  // a folder of a test that runs beside this one
  if (name.find("zero-") == 0) return true;
  constexpr std::string_view known[] = {"vader_segment", "sm_segment", "ompi",
                                        "pym-",          "psm_",       "sem."};
  return folder == "/dev/shm" &&
         std::none_of(std::begin(known), std::end(known),
                      [&](std::string_view prefix) { return name.find(prefix) == 0; });
}

std::set<std::string> suspect_files() {
  std::vector<std::string> folders{"/dev/shm", "/tmp"};
  for (const char* variable : {"TMPDIR", "XDG_RUNTIME_DIR"}) {
    if (const char* folder = std::getenv(variable)) folders.emplace_back(folder);
  }
  std::set<std::string> files;
  for (const std::string& folder : folders) {
    for (const std::string& name : entries_of(folder)) {
      if (is_suspect(folder, name)) files.insert(folder + "/" + name);
    }
  }
  return files;
}

std::set<std::string> open_descriptors() {
  std::set<std::string> open;
  for (const std::string& number : entries_of("/proc/self/fd")) {
    char target[512];
    const ssize_t length = ::readlink(("/proc/self/fd/" + number).c_str(), target, sizeof(target));
    if (length < 0) continue;  // the descriptor of the folder itself
    open.insert(number + " -> " + std::string(target, static_cast<std::size_t>(length)));
  }
  return open;
}

}  // namespace

std::set<int> own_listening_ports() {
  std::set<std::string> inodes;
  for (const std::string& descriptor : open_descriptors()) {
    const auto start = descriptor.find("socket:[");
    if (start == std::string::npos) continue;
    inodes.insert(descriptor.substr(start + 8, descriptor.size() - start - 9));
  }
  std::set<int> ports;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);  // the heading
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      constexpr std::string_view listening = "0A";
      if (state != listening || inodes.count(inode) == 0) continue;
      ports.insert(static_cast<int>(std::stoul(local.substr(local.rfind(':') + 1), nullptr, 16)));
    }
  }
  return ports;
}

leftovers::snapshot leftovers::now() {
  return {suspect_files(), open_descriptors(), entries_of("/proc/self/task").size()};
}

leftovers::leftovers() : before_(now()) {}

std::string leftovers::difference(const std::set<std::string>& files) const {
  const snapshot after = now();
  std::string text;
  for (const std::string& file : after.files) {
    if (files.count(file) != 0) text += "file " + file + "\n";
  }
  for (const std::string& descriptor : after.descriptors) {
    if (before_.descriptors.count(descriptor) == 0) text += "descriptor " + descriptor + "\n";
  }
  if (after.threads > before_.threads) {
    text += std::to_string(after.threads - before_.threads) + " thread(s)\n";
  }
  return text;
}

std::string leftovers::found(pid_t group, std::chrono::milliseconds patience) const {
  using namespace std::chrono_literals;
  // Only what is there now can be left over: other programs come and go while this waits.
  std::set<std::string> files = suspect_files();
  for (const std::string& file : before_.files) files.erase(file);
  const auto look = [&] {
    std::string text = difference(files);
    if (group > 0 && (::kill(-group, 0) == 0 || errno != ESRCH)) {
      text += "a process of group " + std::to_string(group) + "\n";
    }
    return text;
  };
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::string text = look();
  while (!text.empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(20ms);
    text = look();
  }
  return text;
}

}  // namespace zero::test
