// SPDX-License-Identifier: Apache-2.0
#include "team.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace collectives_bench {
namespace {

/// For one request: generous, because machines are shared and sizes are free.
constexpr std::chrono::milliseconds patience = std::chrono::minutes(5);

/// Waits for the processes to end by themselves, and kills those that do not.
void end_processes(const std::vector<pid_t>& processes) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (const pid_t process : processes) {
    while (::waitpid(process, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() >= deadline) {
        ::kill(process, SIGKILL);
        ::waitpid(process, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

}  // namespace

temporary_folder::temporary_folder()
    : path_((std::filesystem::temp_directory_path() / "zero-bench-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), "make " + path_);
  }
}

temporary_folder::~temporary_folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

team::~team() {
  channels_.clear();
  end_processes(processes_);
}

timing team::ask(const request& what) {
  for (const descriptor& channel : channels_) send_object(channel.number(), what);
  return collect(std::string(facts_of(what.subject).name(what.load.what)) + ", " +
                 std::string(name_of(what.load.what)) + " of " + std::to_string(what.load.bytes()) +
                 " bytes");
}

timing team::collect(const std::string& what) {
  timing result;
  for (int rank = 0; rank < size(); ++rank) {
    const auto complain = [&](std::string_view how) {
      throw std::runtime_error("rank " + std::to_string(rank) + " of " + std::to_string(size()) +
                               " (" + std::string(name_of(kind_)) + ") was asked " + what + ": " +
                               std::string(how));
    };
    reply answer;
    std::optional<std::string> failure;
    try {
      if (!receive_object(channels_[static_cast<std::size_t>(rank)].number(), answer, patience)) {
        failure = "it ended";
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (failure) complain(*failure);
    if (!answer.failure_text().empty()) complain(answer.failure_text());
    result.seconds = std::max(result.seconds, answer.seconds);
    result.cpu_seconds += answer.cpu_seconds;
  }
  return result;
}

}  // namespace collectives_bench
