// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>

namespace collectives_bench {
namespace {

volatile std::sig_atomic_t is_interrupted = 0;

}  // namespace

descriptor::~descriptor() {
  if (number_ >= 0) ::close(number_);
}

int checked(int result, const std::string& what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

void reply::set_failure(std::string_view text) noexcept {
  failure.fill('\0');
  std::copy_n(text.data(), std::min(text.size(), failure.size() - 1), failure.data());
}

void interrupt_by_signals() {
  struct sigaction action {};  // without SA_RESTART: waits end
  action.sa_handler = [](int) { is_interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

void send_bytes(int to, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw std::system_error(errno, std::generic_category(), "send to a rank");
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

bool receive_bytes(int from, std::span<std::byte> bytes, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  bool has_begun = false;
  while (!bytes.empty()) {
    if (is_interrupted != 0) throw std::runtime_error("interrupted");
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd waiting{from, POLLIN, 0};
    const int ready =
        ::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (checked(ready, "poll") == 0) {
      throw std::runtime_error("no answer within " + std::to_string(limit.count()) + " ms");
    }
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    const bool has_gone = got == 0 || (got < 0 && errno == ECONNRESET);
    if (has_gone && !has_begun) return false;
    if (has_gone) throw std::runtime_error("the other side ended within a message");
    if (got < 0) throw std::system_error(errno, std::generic_category(), "receive");
    has_begun = true;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

}  // namespace collectives_bench
