// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/v6_only.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <zero/error.hpp>
#include <zero/rendezvous/detail/tcp_protocol.hpp>
#include <zero/rendezvous/detail/tcp_session.hpp>
#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

struct tcp_server_options {
  /// Only ranks with the same id are served; the others are told whose port it is.
  std::string run_id;
  /// An address of this host to listen at; empty: all of them, IPv4 and IPv6.
  std::string address;
  /// 0: the system chooses, see port().
  std::uint16_t port = 0;
  /// A socket that listens already, taken over; -1: none. With it a launcher hands over a port that
  /// nobody can take in between.
  int listening_descriptor = -1;
  /// How long the destructor waits for ranks that are still connected.
  std::chrono::nanoseconds linger = std::chrono::seconds(5);
};

/// The side of a tcp_store that holds the values: a thread that serves the ranks of one run.
///
/// While the world gathers, a rank with another world size, or a rank that comes twice, fails the
/// world: every rank is told. When the world is complete, only the newcomer is. The destructor
/// waits until the ranks have left, at most `linger`, because they may still read a value that made
/// this process go on. Peers that do not speak the protocol are dropped: no allocation beyond
/// store_limits, no more than a fixed number of connections. It trusts peers that do speak it:
/// for networks that belong to the job.
class tcp_store_server final : private detail::tcp_session_owner {
 public:
  /// Throws: rendezvous_error when the port is taken or the address is not of this host.
  explicit tcp_store_server(int size, tcp_server_options options = {})
      : size_(size), options_(std::move(options)), acceptor_(io_), linger_(io_) {
    if (size < 1) {
      throw usage_error("zero::tcp_store_server: a world of " + std::to_string(size) +
                        " ranks does not exist");
    }
    if (options_.listening_descriptor >= 0)
      adopt();
    else
      listen();
    const auto at = acceptor_.local_endpoint();
    port_ = at.port();
    own_address_ = at.address().is_unspecified() ? "127.0.0.1" : at.address().to_string();
    accept();
    start_thread();
  }
  tcp_store_server(const tcp_store_server&) = delete;
  tcp_store_server& operator=(const tcp_store_server&) = delete;
  ~tcp_store_server() {
    asio::post(io_, [this] { drain(); });
    thread_.join();
  }

  std::uint16_t port() const noexcept { return port_; }
  /// The address at which a process of the same host reaches it.
  const std::string& own_address() const noexcept { return own_address_; }

 private:
  using tcp = asio::ip::tcp;

  static constexpr std::size_t most_stored_bytes = std::size_t{256} << 20;

  // Start.

  std::string place() const {
    return "tcp store, port " +
           std::to_string(options_.listening_descriptor >= 0 && port_ != 0 ? port_ : options_.port);
  }

  void listen() {
    std::error_code failed;
    if (!options_.address.empty()) {
      const auto address = asio::ip::make_address(options_.address, failed);
      if (!failed) failed = listen_at({address, options_.port});
    } else {
      failed = listen_at({tcp::v6(), options_.port});
      // A kernel without IPv6 says one of these.
      if (failed.value() == EAFNOSUPPORT || failed.value() == EADDRNOTAVAIL) {
        failed = listen_at({tcp::v4(), options_.port});
      }
    }
    if (!failed) return;
    std::string reason = "cannot listen";
    if (!options_.address.empty()) reason += " at address " + options_.address;
    reason += ": " + failed.message();
    if (failed.value() == EADDRINUSE) {
      reason += "; another process listens at port " + std::to_string(options_.port) +
                ": end it, or set MASTER_PORT (or ZERO_STORE_PORT) to a free port on all ranks";
    } else if (failed.value() == EADDRNOTAVAIL) {
      reason += "; rank 0 has to run on the host that MASTER_ADDR names";
    }
    throw rendezvous_error(reason, {place(), "", 0});
  }

  std::error_code listen_at(const tcp::endpoint& endpoint) {
    std::error_code failed;
    acceptor_.close(failed);
    acceptor_.open(endpoint.protocol(), failed);
    if (failed) return failed;
    // Connections of an earlier run that linger in the kernel do not block the port.
    acceptor_.set_option(tcp::acceptor::reuse_address(true), failed);
    if (!failed && endpoint.address().is_v6() && endpoint.address().is_unspecified()) {
      acceptor_.set_option(asio::ip::v6_only(false), failed);
    }
    if (!failed) acceptor_.bind(endpoint, failed);
    if (!failed) acceptor_.listen(tcp::acceptor::max_listen_connections, failed);
    return failed;
  }

  void adopt() {
    const int descriptor = options_.listening_descriptor;
    int listens = 0;
    socklen_t length = sizeof listens;
    sockaddr_storage address{};
    socklen_t address_length = sizeof address;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
        listens == 0 ||
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &address_length) != 0) {
      throw rendezvous_error("descriptor " + std::to_string(descriptor) +
                                 " is not a listening socket; a launcher hands one over as "
                                 "ZERO_STORE_FD",
                             {place(), "", 0});
    }
    // Programs that this one starts must not keep the port.
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    acceptor_.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), descriptor);
  }

  void start_thread() {
    // Signals of the host program are for its own threads.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { serve(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void serve() noexcept {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (...) {
        // Out of memory in one handler: its session went with it, which its rank notices.
      }
    }
  }

  // Connections.

  void accept() {
    acceptor_.async_accept([this](std::error_code failed, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      const std::size_t most_sessions = 64 + 8 * static_cast<std::size_t>(size_);
      if (!failed && sessions_.size() < most_sessions) {
        // Converted here, where the private base is accessible.
        detail::tcp_session_owner& owner = *this;
        std::make_shared<detail::tcp_session>(std::move(socket), owner)->start();
      }
      if (!failed) return accept();
      // Out of descriptors, say: a moment later there may be some.
      accept_pause_.expires_after(std::chrono::milliseconds(100));
      accept_pause_.async_wait([this](std::error_code) {
        if (acceptor_.is_open()) accept();
      });
    });
  }

  void appeared(detail::tcp_session& session) override { sessions_.insert(&session); }

  void vanished(detail::tcp_session& session) noexcept override {
    sessions_.erase(&session);
    if (draining_ && !any_joined()) close_all();
  }

  bool any_joined() const {
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [](const detail::tcp_session* session) { return session->joined(); });
  }

  void drain() {
    std::error_code ignored;
    acceptor_.close(ignored);
    accept_pause_.cancel();
    draining_ = true;
    if (!any_joined()) return close_all();
    linger_.expires_after(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(options_.linger));
    linger_.async_wait([this](std::error_code cancelled) {
      if (!cancelled) close_all();
    });
  }

  void close_all() {
    draining_ = false;
    linger_.cancel();
    for (detail::tcp_session* session : sessions_) session->close();
  }

  // Requests.

  void handle(detail::tcp_session& session, detail::tcp_operation operation, std::string_view key,
              std::string_view value, std::chrono::milliseconds wait) override {
    using detail::tcp_operation;
    using detail::tcp_status;
    if (operation == tcp_operation::hello) return greet(session, key, value);
    if (!failure_.empty()) return session.reply(tcp_status::refused, failure_);
    const auto found = values_.find(key);
    const auto found_or_not = found != values_.end() ? tcp_status::done : tcp_status::absent;
    switch (operation) {
      case tcp_operation::set:
        return set(session, key, value);
      case tcp_operation::contains:
        return session.reply(found_or_not);
      case tcp_operation::remove:
        if (found != values_.end()) {
          stored_bytes_ -= found->first.size() + found->second.size();
          values_.erase(found);
        }
        return session.reply(found_or_not);
      case tcp_operation::get:
        if (found != values_.end()) return session.reply(tcp_status::done, found->second);
        if (wait.count() == 0) return session.reply(tcp_status::absent);
        waits_.emplace(std::string(key), session.weak_from_this());
        return session.wait(wait);
      case tcp_operation::gather:
        if (is_complete()) return session.reply(tcp_status::done);
        gathering_.push_back(session.weak_from_this());
        return session.wait(wait);
      default:
        return session.close();
    }
  }

  void set(detail::tcp_session& session, std::string_view key, std::string_view value) {
    const auto found = values_.find(key);
    const std::size_t before =
        found == values_.end() ? 0 : found->first.size() + found->second.size();
    const std::size_t after = stored_bytes_ - before + key.size() + value.size();
    if (after > most_stored_bytes) {
      return session.reply(
          detail::tcp_status::failed,
          "the store is full: it holds at most " + std::to_string(most_stored_bytes) + " bytes");
    }
    values_.insert_or_assign(std::string(key), std::string(value));
    stored_bytes_ = after;
    const auto [first, last] = waits_.equal_range(key);
    for (auto wait = first; wait != last; ++wait) {
      const auto waiting = wait->second.lock();
      if (waiting && waiting->waiting()) waiting->reply(detail::tcp_status::done, value);
    }
    waits_.erase(first, last);
    session.reply(detail::tcp_status::done);
  }

  void expire(detail::tcp_session& session) override {
    // What is left of this wait would answer the session's next one.
    const auto is_over = [&](const std::weak_ptr<detail::tcp_session>& wait) {
      const auto waiting = wait.lock();
      return !waiting || waiting.get() == &session;
    };
    std::erase_if(waits_, [&](const auto& wait) { return is_over(wait.second); });
    std::erase_if(gathering_, is_over);
    detail::short_list missing;
    for (int rank = 0; rank < size_ && !is_complete(); ++rank) {
      if (!joined_.contains(rank)) missing.add(std::to_string(rank));
    }
    session.reply(detail::tcp_status::absent, missing.count() == 0
                                                  ? ""
                                                  : std::to_string(missing.count()) + " of " +
                                                        std::to_string(size_) +
                                                        " ranks did not come: " + missing.text());
  }

  // The world.

  bool is_complete() const noexcept { return static_cast<int>(joined_.size()) == size_; }

  void greet(detail::tcp_session& session, std::string_view run_id, std::string_view value) {
    const auto hello = detail::tcp_hello::decode(value);
    if (!hello || session.joined()) return session.close();
    if (run_id != options_.run_id) {
      return session.reply(detail::tcp_status::occupied, "the port serves run '" + options_.run_id +
                                                             "', this rank belongs to run '" +
                                                             std::string(run_id) + "'");
    }
    if (!failure_.empty()) return session.reply(detail::tcp_status::refused, failure_);
    const std::string who = "rank " + std::to_string(hello->rank) + " (" + session.peer() + ')';
    if (hello->size != size_ || hello->rank < 0 || hello->rank >= size_) {
      return refuse(session, "the store was opened with a world size of " + std::to_string(size_) +
                                 ", " + who + " came with " + std::to_string(hello->size));
    }
    const auto [at, is_new] = joined_.emplace(hello->rank, *hello);
    if (!is_new && !at->second.same_process(*hello)) {
      return refuse(session, who + " came twice; two jobs need a port or a run id each");
    }
    session.join(hello->rank);
    session.reply(detail::tcp_status::done);
    if (!is_new || !is_complete()) return;
    for (const auto& gathering : gathering_) {
      const auto waiting = gathering.lock();
      if (waiting && waiting->waiting()) waiting->reply(detail::tcp_status::done);
    }
    gathering_.clear();
  }

  /// A world that is complete goes on: a latecomer is at fault, or comes too early for the next.
  void refuse(detail::tcp_session& session, const std::string& reason) {
    if (is_complete()) return session.reply(detail::tcp_status::occupied, reason);
    failure_ = reason;
    for (detail::tcp_session* other : sessions_) {
      if (other->waiting()) other->reply(detail::tcp_status::refused, failure_);
    }
    waits_.clear();
    gathering_.clear();
    session.reply(detail::tcp_status::refused, failure_);
  }

  int size_;
  tcp_server_options options_;
  std::uint16_t port_ = 0;
  std::string own_address_;
  // Sessions that end with io_ still take themselves off this list.
  std::set<detail::tcp_session*> sessions_;
  std::map<int, detail::tcp_hello> joined_;
  std::map<std::string, std::string, std::less<>> values_;
  std::multimap<std::string, std::weak_ptr<detail::tcp_session>, std::less<>> waits_;
  std::vector<std::weak_ptr<detail::tcp_session>> gathering_;
  std::size_t stored_bytes_ = 0;
  std::string failure_;
  bool draining_ = false;
  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer linger_;
  asio::steady_timer accept_pause_{io_};
  std::thread thread_;
};

}  // namespace zero
