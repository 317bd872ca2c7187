// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <asio/buffer.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <zero/rendezvous/detail/tcp_protocol.hpp>

namespace zero::detail {

class tcp_session;

/// What a session asks of the server that owns it.
class tcp_session_owner {
 public:
  virtual void appeared(tcp_session& session) = 0;
  virtual void handle(tcp_session& session, tcp_operation operation, std::string_view key,
                      std::string_view value, std::chrono::milliseconds wait) = 0;
  /// The time that a waiting request allowed has passed.
  virtual void expire(tcp_session& session) = 0;
  virtual void vanished(tcp_session& session) noexcept = 0;

 protected:
  ~tcp_session_owner() = default;
};

/// One connection of the server: reads a request, lets the owner handle it, writes the reply.
///
/// It lives as long as one of its operations is pending: whoever does not speak the protocol is
/// dropped by not reading on. All of it runs in the server's one thread.
class tcp_session : public std::enable_shared_from_this<tcp_session> {
 public:
  /// A peer that says nothing does not hold its connection for longer.
  static constexpr std::chrono::seconds patience_with_strangers{10};
  static constexpr std::chrono::hours longest_wait{24 * 365};

  tcp_session(asio::ip::tcp::socket socket, tcp_session_owner& owner)
      : socket_(std::move(socket)), timer_(socket_.get_executor()), owner_(owner) {
    owner_.appeared(*this);
  }
  tcp_session(const tcp_session&) = delete;
  tcp_session& operator=(const tcp_session&) = delete;
  ~tcp_session() { owner_.vanished(*this); }

  void start() {
    std::error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    start_timer(patience_with_strangers);
    read_header();
  }

  bool joined() const noexcept { return rank_ >= 0; }
  int rank() const noexcept { return rank_; }
  void join(int rank) {
    rank_ = rank;
    timer_.cancel();
  }

  /// "10.0.0.2:40112", for messages.
  std::string peer() const {
    std::error_code failed;
    const auto endpoint = socket_.remote_endpoint(failed);
    if (failed) return "a peer that left";
    return endpoint.address().to_string() + ':' + std::to_string(endpoint.port());
  }

  /// Answers the request, at once or after `wait`; then reads the next one.
  void reply(tcp_status status, std::string_view value = {}) {
    if (std::exchange(waiting_, false)) {
      timer_.cancel();
      socket_.cancel();  // ends the watch for a peer that leaves
    }
    tcp_reply_header header;
    header.status = status;
    header.value_bytes = static_cast<std::uint32_t>(value.size());
    reply_header_ = header.encode();
    body_ = value;
    const std::array<asio::const_buffer, 2> buffers{asio::buffer(reply_header_),
                                                    asio::buffer(body_)};
    asio::async_write(socket_, buffers,
                      [self = shared_from_this()](std::error_code failed, std::size_t) {
                        if (!failed) self->read_header();
                      });
  }

  /// Keeps the request open: the owner replies later, or is asked to expire it.
  void wait(std::chrono::milliseconds time) {
    waiting_ = true;
    start_timer(time);
    // No request may follow before the reply, so anything to read is the end of the connection or
    // a breach of the protocol: either way the session goes.
    socket_.async_wait(asio::ip::tcp::socket::wait_read,
                       [self = shared_from_this()](std::error_code) {
                         if (self->waiting_) self->close();
                       });
  }

  bool waiting() const noexcept { return waiting_; }

  /// Ends all pending operations, and with them the session.
  void close() {
    waiting_ = false;
    std::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
  }

 private:
  void start_timer(std::chrono::milliseconds time) {
    timer_.expires_after(std::clamp<std::chrono::milliseconds>(time, {}, longest_wait));
    timer_.async_wait([weak = weak_from_this()](std::error_code cancelled) {
      const auto self = weak.lock();
      if (cancelled || !self) return;
      if (self->waiting_)
        self->owner_.expire(*self);
      else if (!self->joined())
        self->close();
    });
  }

  void read_header() {
    asio::async_read(socket_, asio::buffer(request_header_),
                     [self = shared_from_this()](std::error_code failed, std::size_t) {
                       if (!failed) self->read_body();
                     });
  }

  void read_body() {
    const auto header = tcp_request_header::decode(request_header_);
    if (header.magic != tcp_magic) return;
    if (header.version != tcp_version) {
      return reply(tcp_status::refused, "the store speaks version " + std::to_string(tcp_version) +
                                            " of its protocol, this rank version " +
                                            std::to_string(header.version) +
                                            "; build all ranks with the same version of zero");
    }
    if (!acceptable(header, joined())) return;
    body_.resize(std::size_t{header.key_bytes} + header.value_bytes);
    asio::async_read(socket_, asio::buffer(body_),
                     [self = shared_from_this(), header](std::error_code failed, std::size_t) {
                       if (!failed) self->handle(header);
                     });
  }

  void handle(const tcp_request_header& header) {
    const std::string request = std::exchange(body_, {});
    const std::string_view key = std::string_view(request).substr(0, header.key_bytes);
    const auto longest = std::chrono::milliseconds(longest_wait);
    const auto wait = std::min<std::uint64_t>(header.wait_milliseconds,
                                              static_cast<std::uint64_t>(longest.count()));
    owner_.handle(*this, header.operation, key, std::string_view(request).substr(header.key_bytes),
                  std::chrono::milliseconds(wait));
  }

  asio::ip::tcp::socket socket_;
  asio::steady_timer timer_;
  tcp_session_owner& owner_;
  tcp_request_header::buffer request_header_{};
  tcp_reply_header::buffer reply_header_{};
  std::string body_;  ///< of the request, then of the reply
  int rank_ = -1;
  bool waiting_ = false;
};

}  // namespace zero::detail
