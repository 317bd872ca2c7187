// SPDX-License-Identifier: Apache-2.0
#include "socket_contender.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace collectives_bench {
namespace {

/// As large as the segments of the Gloo backend; larger ones are no faster.
constexpr std::uint64_t block_bytes = std::uint64_t{1} << 20U;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

descriptor tcp_socket() {
  return descriptor(checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
}

std::uint16_t listen_at_any_port(int socket) {
  sockaddr_in address = loopback(0);
  checked(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "bind");
  checked(::listen(socket, SOMAXCONN), "listen");
  socklen_t length = sizeof(address);
  checked(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length), "getsockname");
  return ntohs(address.sin_port);
}

descriptor connect_to(std::uint16_t port) {
  descriptor socket = tcp_socket();
  const sockaddr_in address = loopback(port);
  checked(::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
          "connect to 127.0.0.1:" + std::to_string(port));
  return socket;
}

descriptor accept_from(int listening, std::chrono::milliseconds limit) {
  pollfd waiting{listening, POLLIN, 0};
  if (checked(::poll(&waiting, 1, static_cast<int>(limit.count())), "poll") == 0) {
    throw std::runtime_error("no rank connected within " + std::to_string(limit.count()) + " ms");
  }
  return descriptor(checked(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC), "accept"));
}

bool would_block() noexcept {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

socket_contender::socket_contender(rank_place place, rank_memory memory,
                                   std::vector<descriptor> sockets)
    : contender(place, memory),
      sockets_(std::move(sockets)),
      lanes_(sockets_.size()),
      landing_(block_bytes) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].socket = sockets_[i].number();
    const int on = 1;
    ::setsockopt(lanes_[i].socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    checked(::fcntl(lanes_[i].socket, F_SETFL, O_NONBLOCK), "fcntl");
  }
}

void socket_contender::run(const workload& load) {
  const std::uint64_t shard_bytes = load.bytes() / static_cast<std::uint64_t>(place().size);
  const auto shard = [&](int of) {
    return memory().full + static_cast<std::uint64_t>(of) * shard_bytes;
  };
  const bool gathers = load.what == operation::all_gather;
  for (int peer = 0; peer < place().size; ++peer) {
    if (peer == place().rank) continue;
    lane& to = lanes_[static_cast<std::size_t>(peer < place().rank ? peer : peer - 1)];
    to.outgoing = gathers ? shard(place().rank) : shard(peer);
    to.incoming = gathers ? shard(peer) : nullptr;
    to.to_send = to.to_receive = shard_bytes;
  }
  const auto is_done = [](const lane& one) { return one.to_send == 0 && one.to_receive == 0; };
  while (!std::all_of(lanes_.begin(), lanes_.end(), is_done)) {
    bool has_moved = false;
    for (lane& one : lanes_) {
      has_moved |= send_some(one);
      has_moved |= receive_some(one);
    }
    if (!has_moved) sleep_until_ready();
  }
}

const std::byte* socket_contender::result(const workload& load) const {
  return load.what == operation::all_gather ? memory().full : nullptr;
}

bool socket_contender::send_some(lane& to) {
  if (to.to_send == 0) return false;
  const auto most = static_cast<std::size_t>(std::min(to.to_send, block_bytes));
  const ssize_t sent = ::send(to.socket, to.outgoing, most, MSG_NOSIGNAL);
  if (sent < 0 && would_block()) return false;
  if (sent < 0) throw std::system_error(errno, std::generic_category(), "send to a peer");
  to.outgoing += sent;
  to.to_send -= static_cast<std::uint64_t>(sent);
  return true;
}

bool socket_contender::receive_some(lane& from) {
  if (from.to_receive == 0) return false;
  const auto most = static_cast<std::size_t>(std::min(from.to_receive, block_bytes));
  std::byte* const to = from.incoming != nullptr ? from.incoming : landing_.data();
  const ssize_t got = ::recv(from.socket, to, most, 0);
  if (got < 0 && would_block()) return false;
  if (got < 0) throw std::system_error(errno, std::generic_category(), "receive from a peer");
  if (got == 0) throw std::runtime_error("a peer closed its socket");
  if (from.incoming != nullptr) from.incoming += got;
  from.to_receive -= static_cast<std::uint64_t>(got);
  return true;
}

void socket_contender::sleep_until_ready() {
  std::vector<pollfd> waiting;
  for (const lane& one : lanes_) {
    const int events = (one.to_send != 0 ? POLLOUT : 0) | (one.to_receive != 0 ? POLLIN : 0);
    if (events != 0) waiting.push_back({one.socket, static_cast<short>(events), 0});
  }
  constexpr std::chrono::milliseconds limit = std::chrono::minutes(1);
  const int ready = ::poll(waiting.data(), waiting.size(), static_cast<int>(limit.count()));
  if (ready == 0) throw std::runtime_error("no byte moved for a minute");
  if (ready < 0 && errno != EINTR) {
    throw std::system_error(errno, std::generic_category(), "poll");
  }
}

std::vector<descriptor> connect_loopback(zero::any_store store, rank_place place,
                                         std::chrono::seconds limit) {
  const descriptor listening = tcp_socket();
  const auto key = [](int rank) { return "sockets/" + std::to_string(rank); };
  store.set(key(place.rank), std::to_string(listen_at_any_port(listening.number())));

  std::vector<descriptor> sockets(static_cast<std::size_t>(place.size - 1));
  for (int peer = 0; peer < place.rank; ++peer) {
    const std::string port = store.get(key(peer), zero::deadline_in(limit));
    descriptor& socket = sockets[static_cast<std::size_t>(peer)];
    socket = connect_to(static_cast<std::uint16_t>(std::stoul(port)));
    send_object(socket.number(), place.rank);
  }
  for (int waited = place.rank + 1; waited < place.size; ++waited) {
    descriptor socket = accept_from(listening.number(), limit);
    int peer = -1;
    if (!receive_object(socket.number(), peer, limit) || peer <= place.rank || peer >= place.size) {
      throw std::runtime_error("a stranger connected, as rank " + std::to_string(peer));
    }
    sockets[static_cast<std::size_t>(peer - 1)] = std::move(socket);
  }
  return sockets;
}

}  // namespace collectives_bench
