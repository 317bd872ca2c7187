// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <asio/error.hpp>
#include <asio/ip/address.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <zero/detail/hash.hpp>
#include <zero/error.hpp>
#include <zero/rendezvous/detail/posix_files.hpp>
#include <zero/rendezvous/detail/tcp_client.hpp>
#include <zero/rendezvous/detail/tcp_protocol.hpp>
#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/store.hpp>
#include <zero/rendezvous/tcp_store_server.hpp>

namespace zero {

struct tcp_store_options {
  /// The launcher's job id: a rank of another job that comes to the same port is turned away.
  std::string run_id;
  /// How long the constructor waits for the other ranks.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  /// How long set, contains and remove wait for rank 0's answer.
  std::chrono::nanoseconds request_timeout = std::chrono::seconds(30);
  /// Rank 0 holds the values; false: a tcp_store_server elsewhere does.
  bool rank_0_serves = true;
  /// For rank 0's server: see tcp_server_options.
  int listening_descriptor = -1;
  std::chrono::nanoseconds linger = std::chrono::seconds(5);
};

/// A store that rank 0 holds and the other ranks reach over TCP, IPv4 or IPv6.
///
/// The constructor returns when all ranks have come; they may start in any order. Every rank gives
/// the address and the port of rank 0's host. Where the address is a number rank 0 listens at that
/// address alone; a name may stand for another address on rank 0's own host (127.0.1.1 on some
/// systems), so then it listens at all of them. Rank 0's destructor waits for the others, see
/// tcp_store_server. Sending to a peer that is gone raises no SIGPIPE.
/// Collective: construction, all ranks. Not for use across fork().
class tcp_store {
 public:
  /// Throws: rendezvous_timeout_error that names the missing ranks; rendezvous_mismatch_error when
  /// world sizes or versions differ or a rank comes twice; rendezvous_error, e.g. for a port that
  /// is taken; usage_error for a rank that cannot be.
  tcp_store(const std::string& address, std::uint16_t port, int rank, int size,
            tcp_store_options options = {})
      : options_(std::move(options)),
        self_{address, address, port, options_.run_id, {rank, size, random_bits(), random_bits()}} {
    if (size < 1 || rank < 0 || rank >= size) {
      throw usage_error("zero::tcp_store: rank " + std::to_string(rank) +
                        " does not exist in a world of " + std::to_string(size));
    }
    if (port == 0 && options_.listening_descriptor < 0) {
      throw usage_error("zero::tcp_store: the ranks need one port to meet at, not 0");
    }
    detail::check_key(self_.place() + ", run id", "id:" + options_.run_id);
    const auto deadline = deadline_in(options_.timeout);
    if (rank == 0 && options_.rank_0_serves) serve();
    gather(deadline);
  }
  tcp_store(const tcp_store&) = delete;
  tcp_store& operator=(const tcp_store&) = delete;

  std::uint16_t port() const noexcept { return self_.port; }

  void set(std::string_view key, std::string_view bytes) {
    detail::check_value(place(), key, bytes);
    request(detail::tcp_operation::set, key, bytes);
  }

  std::string get(std::string_view key, store_deadline deadline) {
    detail::check_key(place(), key);
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      const auto left = std::max(deadline - std::chrono::steady_clock::now(), {});
      auto reply = ask(detail::tcp_operation::get, key, {}, left);
      if (reply.status == detail::tcp_status::done) return std::move(reply.value);
      if (std::chrono::steady_clock::now() >= deadline) {
        throw rendezvous_timeout_error("no rank has set it",
                                       {place(), std::string(key), detail::seconds_since(start)});
      }
    }
  }

  bool contains(std::string_view key) {
    detail::check_key(place(), key);
    return request(detail::tcp_operation::contains, key);
  }

  bool remove(std::string_view key) {
    detail::check_key(place(), key);
    return request(detail::tcp_operation::remove, key);
  }

  std::string place() const { return self_.place(); }

 private:
  static std::uint64_t random_bits() {
    return detail::hasher{}.add(std::string_view(detail::random_nonce())).value();
  }

  void serve() {
    std::error_code not_a_number;
    asio::ip::make_address(self_.host, not_a_number);
    tcp_server_options options;
    options.run_id = options_.run_id;
    options.address = not_a_number ? "" : self_.host;
    options.port = self_.port;
    options.listening_descriptor = options_.listening_descriptor;
    options.linger = options_.linger;
    server_ = std::make_unique<tcp_store_server>(self_.hello.size, options);
    self_.port = server_->port();
    self_.address = server_->own_address();
  }

  void gather(store_deadline deadline) {
    const auto start = std::chrono::steady_clock::now();
    put_back(detail::connect_rank(self_, deadline));
    for (;;) {
      const auto left = std::max(deadline - std::chrono::steady_clock::now(), {});
      const auto reply = ask(detail::tcp_operation::gather, "", {}, left);
      if (reply.status == detail::tcp_status::done) return;
      if (std::chrono::steady_clock::now() >= deadline) {
        throw rendezvous_timeout_error(
            reply.value + "; look for their errors, or allow more time if they start late",
            {place(), "", detail::seconds_since(start)});
      }
    }
  }

  bool request(detail::tcp_operation operation, std::string_view key, std::string_view value = {}) {
    return ask(operation, key, value, {}).status == detail::tcp_status::done;
  }

  /// `wait` is the server's: the answer may take request_timeout longer.
  detail::tcp_reply ask(detail::tcp_operation operation, std::string_view key,
                        std::string_view value, std::chrono::nanoseconds wait) {
    const auto start = std::chrono::steady_clock::now();
    detail::tcp_request_header header;
    header.operation = operation;
    // Rounded up, so that the server does not answer before the deadline.
    header.wait_milliseconds =
        wait.count() == 0
            ? 0
            : static_cast<std::uint64_t>(
                  std::chrono::duration_cast<std::chrono::milliseconds>(wait).count() + 1);
    // A server that stopped must not hold a get for much longer than its deadline.
    const auto grace = wait.count() == 0
                           ? options_.request_timeout
                           : std::min<std::chrono::nanoseconds>(options_.request_timeout,
                                                                std::chrono::milliseconds(500));
    const auto deadline = deadline_in(std::chrono::duration<double>(wait) + grace);
    const rendezvous_failure where{place(), std::string(key), 0};
    try {
      auto client = take_idle();
      if (!client) client = detail::connect_rank(self_, deadline);
      auto reply = client->exchange(header, key, value, deadline);
      if (reply.status == detail::tcp_status::refused) {
        throw rendezvous_mismatch_error(reply.value, where);
      }
      if (reply.status == detail::tcp_status::failed) throw rendezvous_error(reply.value, where);
      put_back(std::move(client));
      return reply;
    } catch (const std::system_error& failed) {
      rendezvous_failure late = where;
      late.elapsed_seconds = detail::seconds_since(start);
      if (failed.code() == asio::error::timed_out) {
        throw rendezvous_timeout_error(
            "rank 0 does not answer; its process hangs or its host is "
            "cut off",
            late);
      }
      throw rendezvous_error(
          "lost rank 0, which held the store: its process ended or destroyed its store (" +
              failed.code().message() + ')',
          late);
    }
  }

  // A get that waits occupies its connection, so threads that ask meanwhile use further ones.

  std::unique_ptr<detail::tcp_client> take_idle() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return nullptr;
    auto client = std::move(idle_.back());
    idle_.pop_back();
    return client;
  }

  void put_back(std::unique_ptr<detail::tcp_client> client) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(client));
  }

  tcp_store_options options_;
  detail::tcp_rank self_;
  std::unique_ptr<tcp_store_server> server_;
  std::mutex mutex_;
  // After the server: rank 0's own connections close first, so that it waits for the others only.
  std::vector<std::unique_ptr<detail::tcp_client>> idle_;
};

static_assert(Store<tcp_store>);

}  // namespace zero
