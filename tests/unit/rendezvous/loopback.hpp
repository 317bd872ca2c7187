// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

// Plain sockets on the loopback device: the peers that a store does not expect.

namespace zero::test {

class loopback_socket {
 public:
  loopback_socket() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (descriptor_ < 0) throw std::runtime_error("no socket");
  }
  loopback_socket(loopback_socket&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  loopback_socket& operator=(loopback_socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~loopback_socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  int descriptor() const noexcept { return descriptor_; }
  /// The descriptor, which then belongs to the caller.
  int release() noexcept { return std::exchange(descriptor_, -1); }

  bool connect_to(std::uint16_t port) {
    const sockaddr_in at = loopback(port);
    return ::connect(descriptor_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }

  /// Whether the port could be taken, as a server that starts next would do it.
  bool bind_to(std::uint16_t port) {
    const int yes = 1;
    ::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const sockaddr_in at = loopback(port);
    return ::bind(descriptor_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }

  /// The port that the system chose.
  std::uint16_t listen() {
    if (!bind_to(0) || ::listen(descriptor_, 64) != 0) throw std::runtime_error("cannot listen");
    sockaddr_in at{};
    socklen_t length = sizeof at;
    ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&at), &length);
    return ntohs(at.sin_port);
  }

  void send(std::string_view bytes) {
    // A server that has closed in between is what some tests are about.
    (void)!::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  /// Whether the peer closes within 15 s; what it sends before is dropped.
  bool is_closed_by_peer() {
    for (;;) {
      pollfd waiting{descriptor_, POLLIN, 0};
      if (::poll(&waiting, 1, 15'000) <= 0) return false;
      char buffer[4096];
      const auto count = ::recv(descriptor_, buffer, sizeof buffer, 0);
      if (count <= 0) return true;
    }
  }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
  }

  int descriptor_;
};

/// Whether the loopback device of this host has an IPv6 address.
inline bool has_ipv6() {
  const int descriptor = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  const bool bound = ::bind(descriptor, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  ::close(descriptor);
  return bound;
}

inline bool port_is_free(std::uint16_t port) {
  return loopback_socket().bind_to(port);
}

}  // namespace zero::test
