// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <zero/rendezvous/detail/tcp_protocol.hpp>
#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero::detail {

struct tcp_reply {
  tcp_status status{};
  std::string value;
};

/// One connection of a rank to the server. Every operation ends at its deadline.
class tcp_client {
 public:
  using tcp = asio::ip::tcp;

  /// Connects to the first endpoint that accepts. Throws: std::system_error.
  tcp_client(const std::string& host, std::uint16_t port, store_deadline deadline) : socket_(io_) {
    tcp::resolver resolver(io_);
    // The resolver of the system has its own time limit, which cannot be changed from here.
    const auto endpoints = resolver.resolve(host, std::to_string(port));
    std::error_code failed = asio::error::host_not_found;
    for (const auto& entry : endpoints) {
      socket_ = tcp::socket(io_);
      failed = run(deadline, [&](auto done) { socket_.async_connect(entry.endpoint(), done); });
      if (!failed && !is_connected_to_itself()) break;
      if (!failed) failed = asio::error::connection_refused;
    }
    if (failed) throw std::system_error(failed);
    socket_.set_option(tcp::no_delay(true));
  }

  /// Throws: std::system_error: timed_out at the deadline, protocol_error where the peer does not
  /// speak the protocol.
  tcp_reply exchange(tcp_request_header header, std::string_view key, std::string_view value,
                     store_deadline deadline) {
    header.key_bytes = static_cast<std::uint32_t>(key.size());
    header.value_bytes = static_cast<std::uint32_t>(value.size());
    const auto head = header.encode();
    const std::array<asio::const_buffer, 3> buffers{asio::buffer(head),
                                                    asio::buffer(key.data(), key.size()),
                                                    asio::buffer(value.data(), value.size())};
    check(run(deadline, [&](auto done) {
      asio::async_write(socket_, buffers, [done](std::error_code e, std::size_t) { done(e); });
    }));
    tcp_reply_header::buffer reply_head{};
    read(asio::buffer(reply_head), deadline);
    const auto reply = tcp_reply_header::decode(reply_head);
    if (reply.magic != tcp_magic || reply.value_bytes > store_limits::value_bytes) {
      throw std::system_error(std::make_error_code(std::errc::protocol_error));
    }
    tcp_reply result{reply.status, std::string(reply.value_bytes, '\0')};
    read(asio::buffer(result.value), deadline);
    return result;
  }

 private:
  static void check(std::error_code failed) {
    if (failed) throw std::system_error(failed);
  }

  void read(asio::mutable_buffer to, store_deadline deadline) {
    check(run(deadline, [&](auto done) {
      asio::async_read(socket_, to, [done](std::error_code e, std::size_t) { done(e); });
    }));
  }

  /// Starts one operation and runs it to its end or to the deadline.
  template <class Start>
  std::error_code run(store_deadline deadline, Start start) {
    std::error_code result = asio::error::would_block;
    start([&result](std::error_code e) { result = e; });
    io_.restart();
    io_.run_until(deadline);
    if (io_.stopped()) return result;
    // The operation refers to this frame: it has to end before the frame does.
    std::error_code ignored;
    socket_.close(ignored);
    io_.run();
    return asio::error::timed_out;
  }

  /// A connect to a port of this host that nobody listens at can get that port as its own.
  bool is_connected_to_itself() const {
    std::error_code failed;
    return socket_.local_endpoint(failed) == socket_.remote_endpoint(failed);
  }

  asio::io_context io_{1};
  tcp::socket socket_;
};

/// Where the server is, and who asks.
struct tcp_rank {
  std::string host;     ///< as all ranks know it
  std::string address;  ///< what this rank connects to
  std::uint16_t port = 0;
  std::string run_id;
  tcp_hello hello;

  std::string place() const {
    const bool is_ipv6 = host.find(':') != std::string::npos;
    return "tcp store " + (is_ipv6 ? '[' + host + ']' : host) + ':' + std::to_string(port);
  }
};

/// Connects and says hello, again and again until the deadline: rank 0 may start later.
/// Throws: rendezvous_mismatch_error where the server refuses this rank; rendezvous_timeout_error.
inline std::unique_ptr<tcp_client> connect_rank(const tcp_rank& rank, store_deadline deadline) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  const auto start = steady_clock::now();
  milliseconds pause{5};
  std::string occupied_by;  // an answer counts for more than a later try that got none
  for (;;) {
    std::string reason;
    // Of a host that swallows connections, or of a server that does not answer, a further try may
    // say more.
    const auto try_deadline = std::min(deadline, steady_clock::now() + std::chrono::seconds(5));
    try {
      auto client = std::make_unique<tcp_client>(rank.address, rank.port, try_deadline);
      tcp_request_header header;
      header.operation = tcp_operation::hello;
      const auto reply = client->exchange(header, rank.run_id, rank.hello.encode(), try_deadline);
      if (reply.status == tcp_status::done) return client;
      if (reply.status == tcp_status::refused) {
        throw rendezvous_mismatch_error(reply.value, {rank.place(), "", seconds_since(start)});
      }
      occupied_by = reply.value;
    } catch (const std::system_error& failed) {
      if (failed.code() == std::errc::protocol_error) {
        throw rendezvous_error(
            "what answers there is no store of zero: another program uses the port; set "
            "MASTER_PORT "
            "(or ZERO_STORE_PORT) to a free port on all ranks",
            {rank.place(), "", seconds_since(start)});
      }
      reason =
          failed.code() == asio::error::eof
              ? "the connection is closed without an answer; does another program use the port?"
              : failed.code().message();
    }
    if (steady_clock::now() + pause >= deadline) {
      const rendezvous_failure where{rank.place(), "", seconds_since(start)};
      if (!occupied_by.empty()) throw rendezvous_mismatch_error(occupied_by, where);
      throw rendezvous_timeout_error(
          "rank " + std::to_string(rank.hello.rank) + " cannot reach rank 0 there: " + reason +
              "; look for rank 0's error, and check MASTER_ADDR and MASTER_PORT",
          where);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 3 / 2, milliseconds(500));
  }
}

}  // namespace zero::detail
