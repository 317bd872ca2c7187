// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "unit/rendezvous/store_contract.hpp"

// Ranks that are processes: forked from the test, which must have no further thread at that point.

namespace zero::test {

/// How a child ended: its call's result, or the signal that ended it.
struct child_ending {
  store_result call;
  int signal = 0;
};

/// A forked child that runs one call and reports how it ended.
class child_process {
 public:
  template <class Call>
  explicit child_process(Call call) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    number_ = ::fork();
    if (number_ < 0) throw std::runtime_error("no child");
    if (number_ == 0) {
      ::close(ends[0]);
      const store_result result = result_of(call);
      const std::string text = static_cast<char>('0' + static_cast<int>(result.kind)) + result.text;
      const bool written =
          ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      // Nothing of the parent's is destroyed or flushed twice.
      ::_exit(written ? 0 : 1);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  child_process(child_process&& other) noexcept
      : number_(std::exchange(other.number_, -1)), output_(std::exchange(other.output_, -1)) {}
  child_process& operator=(child_process&&) = delete;
  ~child_process() {
    if (number_ > 0) {
      kill(SIGKILL);
      ::waitpid(number_, nullptr, 0);
    }
    if (output_ >= 0) ::close(output_);
  }

  void kill(int signal) const { ::kill(number_, signal); }

  /// Waits at most 20 s; a child that takes longer is killed and shows as such.
  child_ending finish() {
    std::string text;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd waiting{output_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0) {
        kill(SIGKILL);
        break;
      }
      char buffer[4096];
      const auto count = ::read(output_, buffer, sizeof buffer);
      if (count <= 0) break;
      text.append(buffer, static_cast<std::size_t>(count));
    }
    int status = 0;
    ::waitpid(std::exchange(number_, -1), &status, 0);
    child_ending result;
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    if (!text.empty()) {
      result.call = {static_cast<store_outcome>(text.front() - '0'), text.substr(1)};
    } else {
      result.call = {store_outcome::other, "the child said nothing"};
    }
    return result;
  }

 private:
  pid_t number_ = -1;
  int output_ = -1;
};

/// Runs `function(rank)` in one process per rank and tells how each ended.
template <class Function>
std::vector<store_result> in_processes(int size, Function function) {
  std::vector<child_process> children;
  for (int rank = 0; rank < size; ++rank) {
    children.emplace_back([&, rank] { function(rank); });
  }
  std::vector<store_result> results;
  for (child_process& child : children) results.push_back(child.finish().call);
  return results;
}

}  // namespace zero::test
