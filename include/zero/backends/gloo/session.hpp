// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <zero/backends/gloo/messages.hpp>
#include <zero/backends/gloo/waits.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/detail/transport_communicator.hpp>

namespace zero::detail {

/// The connections of one communicator, and what becomes of them when a rank ends.
///
/// When a peer dies, Gloo wakes who waits for a message that has not begun, but not who waits for
/// the one in flight. So a thread, the watcher, waits on a receive that is posted on every
/// connection and never matched: a connection that breaks wakes it. The same buffer receives the
/// announcements of the peers.
///
/// A rank that ends, well or not, sends one announcement to every peer: that it leaves, or why it
/// failed. The peer takes it, passes a failure on, and closes the connection, which is the receipt:
/// all that was sent before has arrived, and no message to or from the caller's memory is in
/// flight.
class gloo_session {
 public:
  using clock = transport_operation::clock;

  gloo_session(std::shared_ptr<::gloo::rendezvous::Context> context,
               std::chrono::nanoseconds timeout)
      : context_(std::move(context)),
        timeout_(timeout),
        waits_(rank(), timeout),
        peers_(static_cast<std::size_t>(size())) {
    canary_ = buffer(&incoming_, sizeof(incoming_));
    announcer_ = buffer(&outgoing_, sizeof(outgoing_));
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      peer(other).lifeline = buffer(&lifeline_byte_, sizeof(lifeline_byte_));
      try {
        canary_->recv(other, gloo_slots::lifeline, 0, sizeof(lifeline_byte_));
        peer(other).lifeline->recv(other, gloo_slots::lifeline, 0, sizeof(lifeline_byte_));
      } catch (const std::exception& cause) {
        lose(other, cause.what());  // right after it was connected
      }
    }
    listen();
    watcher_ = std::thread([this] { watch(); });
  }
  gloo_session(const gloo_session&) = delete;
  gloo_session& operator=(const gloo_session&) = delete;
  ~gloo_session() {
    if (has_failed()) part(failed_patience);
    close();
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    stop_wake_.notify_all();
    canary_->abortWaitRecv();
    watcher_.join();
  }

  int rank() const noexcept { return context_->rank; }
  int size() const noexcept { return context_->size; }

  std::unique_ptr<gloo_buffer> buffer(const void* data, std::size_t bytes) {
    // Gloo reads and writes through one kind of buffer; what is only sent is not written.
    return context_->createUnboundBuffer(const_cast<void*>(data), bytes);
  }

  /// Enters an operation. Throws: the failure, also where a peer that it needs has left.
  void enter(const transport_operation& operation) {
    waits_.enter(operation);
    const int departed = first_departed(operation.call.sequence);
    if (departed >= 0) fail(departure_of(departed));
    if (has_failed()) throw_failure();
  }
  void leave_operation() noexcept { waits_.leave(); }

  /// The operation is done on this rank.
  void finish(std::uint64_t sequence) {
    if (waits_.finish(sequence)) announce(gloo_announcement::of(waits_.failure()));
  }

  /// Leaves an operation that failed: when it returns, no message is on its way to or from the
  /// caller's memory any more.
  void abandon() noexcept {
    part(failed_patience);
    close();
    waits_.leave();
  }

  /// Waits for one message of this buffer, to or from `other`. Returns false at the deadline.
  /// Throws: the failure.
  bool wait(int other, gloo_buffer& which, gloo_way way) {
    return end_of(other, [&] { return waits_.wait(which, way); });
  }

  /// After the deadline: whether a message of this buffer has arrived in fact.
  bool has_ended(int other, gloo_buffer& which, gloo_way way) {
    return end_of(other, [&] { return waits_.has_ended(which, way); });
  }

  /// Calls post_message(), which sends to or receives from `other`. Throws: the failure.
  template <class Post>
  void post(int other, Post post_message) {
    end_of(other, [&] {
      post_message();
      return true;
    });
  }

  /// As post(), between operations: what goes wrong shows in the next one.
  template <class Post>
  void post_ahead(Post post_message) noexcept {
    try {
      post_message();
    } catch (const std::exception&) {
      // The connection is closed, and the watcher has seen why.
    }
  }

  /// Records a failure unless there is an earlier one. If the operation in progress can be
  /// completed in spite of it, it takes effect afterwards; otherwise it ends the wait. Then it is
  /// passed on to the peers. Any thread.
  void fail(const gloo_failure& failure) noexcept {
    try {
      if (waits_.record(failure)) announce(gloo_announcement::of(failure));
    } catch (const std::exception&) {
      // No memory for the text, or no lock: the operation ends at its deadline.
    }
  }
  /// A failure of this rank's own operation.
  void fail(failure_kind kind, int blamed, std::string_view reason) noexcept {
    gloo_failure failure;
    failure.kind = kind;
    failure.peer = blamed;
    failure.since = waits_.next();
    try {
      failure.reason = reason;
    } catch (const std::exception&) {
      failure.reason.clear();  // no memory for the text: the kind and the rank still stand
    }
    fail(failure);
  }

  bool has_failed() const noexcept { return waits_.has_failed(); }

  /// Requires: has_failed(), and an operation in progress.
  [[noreturn]] void throw_failure() const { waits_.throw_failure(); }

  /// Fails because these ranks have not come. Requires: an operation in progress, and a rank.
  [[noreturn]] void throw_timeout(const std::vector<int>& missing) {
    fail(waits_.timeout_of(missing));
    throw_failure();
  }

  /// Says goodbye, and returns when the peers have all that this rank sent.
  void leave() noexcept {
    is_leaving_.store(true);
    announce(gloo_announcement::goodbye(waits_.next()));
    part(std::min<std::chrono::nanoseconds>(timeout_, leaving_patience));
    close();
  }

 private:
  /// How long peers get to take an announcement: their watchers answer at once, unless their
  /// process is stopped or starved.
  static constexpr std::chrono::milliseconds failed_patience{500};
  static constexpr std::chrono::seconds leaving_patience{5};

  struct peer_state {
    std::unique_ptr<gloo_buffer> lifeline;
    bool is_gone = false;  // its connection is closed or broken
    bool has_left = false;
    std::uint64_t since = 0;  // the first operation without it
  };

  peer_state& peer(int other) noexcept { return peers_[static_cast<std::size_t>(other)]; }

  bool is_gone(int other) noexcept {
    const std::lock_guard lock(mutex_);
    return peer(other).is_gone;
  }

  /// The first peer that left before it came to this operation, -1 when there is none.
  int first_departed(std::uint64_t sequence) noexcept {
    const std::lock_guard lock(mutex_);
    for (int other = 0; other < size(); ++other) {
      if (peer(other).has_left && peer(other).since <= sequence) return other;
    }
    return -1;
  }

  gloo_failure departure_of(int other) const {
    return {.kind = failure_kind::aborted,
            .peer = other,
            .since = waits_.next(),
            .reason = "rank " + std::to_string(other) + " left: its communicator was destroyed"};
  }
  gloo_failure loss_of(int other, const std::string& cause) const {
    return {.kind = failure_kind::aborted,
            .peer = other,
            .since = waits_.next(),
            .reason = "rank " + std::to_string(other) +
                      " is gone: the connection to it broke (gloo: " + cause + ")"};
  }

  /// What use() returns. When it throws, the connection to `other` broke: the watcher knows why, or
  /// will in a moment.
  template <class Use>
  bool end_of(int other, Use use) {
    try {
      if (use()) return true;
      if (!has_failed()) return false;
    } catch (const std::exception& cause) {
      if (!waits_.await_failure(std::chrono::milliseconds(200))) fail(loss_of(other, cause.what()));
    }
    throw_failure();
  }

  /// Sends the one announcement of this rank. Any thread; does not wait.
  void announce(const gloo_announcement& message) noexcept {
    if (has_announced_.exchange(true)) return;
    outgoing_ = message;
    for (int other = 0; other < size(); ++other) {
      if (other == rank() || is_gone(other)) continue;
      try {
        announcer_->send(other, gloo_slots::announcement, 0, sizeof(outgoing_));
      } catch (const std::exception&) {
        // The connection is broken, so the peer knows already.
      }
    }
  }

  /// Waits until each peer has closed its connection to this rank.
  void part(std::chrono::nanoseconds patience) noexcept {
    const std::lock_guard lifelines(lifeline_mutex_);
    const auto limit = clock::now() + patience;
    for (int other = 0; other < size(); ++other) {
      while (other != rank() && !is_gone(other)) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(limit - clock::now());
        if (left.count() <= 0) return;
        try {
          peer(other).lifeline->waitRecv(nullptr, left);
        } catch (const std::exception&) {
          break;  // closed by the peer; or by Gloo after its timeout, and the limit has passed
        }
      }
    }
  }

  void close() noexcept {
    if (is_closed_.exchange(true)) return;
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // They were broken, which serves as well.
    }
  }

  void watch() noexcept {
    bool is_intact = true;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        // A buffer that saw a connection break throws from every wait, so from then on this thread
        // looks now and then: the communicator is at its end.
        if (!is_intact) stop_wake_.wait_for(lock, std::chrono::milliseconds(2));
        if (is_stopping_) return;
      }
      try {
        int from = -1;
        if (canary_->waitRecv(&from, gloo_forever)) take_announcement(from);
      } catch (const std::exception&) {
        is_intact = false;
        find_lost_peers();
      }
    }
  }

  /// Receives the next announcement, from whichever peer.
  void listen() {
    for (;;) {
      std::vector<int> speakers;
      for (int other = 0; other < size(); ++other) {
        if (other != rank() && !is_gone(other)) speakers.push_back(other);
      }
      if (speakers.empty()) return;
      try {
        return canary_->recv(speakers, gloo_slots::announcement, 0, sizeof(incoming_));
      } catch (const std::exception&) {
        // A peer began to announce something, and then its connection broke.
        if (!lose_broken_among(speakers)) return;
      }
    }
  }

  /// Returns whether one of these connections is broken. A receive that is never matched, as the
  /// lifelines are, is refused there.
  bool lose_broken_among(const std::vector<int>& speakers) {
    bool found = false;
    for (const int other : speakers) {
      try {
        canary_->recv(other, gloo_slots::lifeline, 0, sizeof(lifeline_byte_));
      } catch (const std::exception& cause) {
        lose(other, cause.what());
        found = true;
      }
    }
    return found;
  }

  /// A connection broke without an announcement: the peer died, or the network did.
  void lose(int other, const std::string& cause) {
    {
      const std::lock_guard lock(mutex_);
      peer(other).is_gone = true;
    }
    if (!is_leaving_.load()) fail(loss_of(other, cause));
  }

  void take_announcement(int from) noexcept {
    const gloo_announcement message = incoming_;
    {
      const std::lock_guard lock(mutex_);
      peer(from).is_gone = true;
      peer(from).has_left = message.what == gloo_announcement::kind::goodbye;
      peer(from).since = message.since;
    }
    try {
      listen();
      if (message.what == gloo_announcement::kind::failure) {
        fail(message.as_failure());
      } else {
        // A peer that completed the operation in progress is not needed in it any more.
        if (waits_.is_in_progress() && message.since <= waits_.next()) fail(departure_of(from));
      }
      context_->getPair(from)->close();
    } catch (const std::exception&) {
      // Closed already, or no memory: the peer's patience ends the farewell.
    }
    peer(from).lifeline->abortWaitRecv();
  }

  /// The text of what broke this peer's connection, empty while it holds.
  std::string break_of(int other) {
    gloo_buffer& lifeline = *peer(other).lifeline;
    lifeline.abortWaitRecv();  // so the wait ends at once, and throws if the connection is broken
    try {
      lifeline.waitRecv(nullptr, gloo_forever);
    } catch (const std::exception& cause) {
      return cause.what();
    }
    return {};
  }

  void find_lost_peers() noexcept {
    // A parting rank waits on the lifelines itself, and expects connections to close.
    const std::unique_lock lifelines(lifeline_mutex_, std::try_to_lock);
    if (!lifelines.owns_lock()) return;
    try {
      for (int other = 0; other < size(); ++other) {
        if (other == rank() || is_gone(other)) continue;
        const std::string cause = break_of(other);
        if (!cause.empty()) lose(other, cause);
      }
    } catch (const std::exception&) {
      // No memory: the next look comes in a moment.
    }
  }

  std::shared_ptr<::gloo::rendezvous::Context> context_;
  std::chrono::nanoseconds timeout_;
  gloo_waits waits_;
  std::atomic<bool> is_leaving_{false};
  std::atomic<bool> has_announced_{false};
  std::atomic<bool> is_closed_{false};

  std::mutex mutex_;  // of peers_ and is_stopping_
  std::condition_variable stop_wake_;
  std::vector<peer_state> peers_;
  bool is_stopping_ = false;
  // A rank that parts waits on the lifelines; the watcher looks at them only otherwise.
  std::mutex lifeline_mutex_;

  std::byte lifeline_byte_{};
  gloo_announcement incoming_;
  gloo_announcement outgoing_;
  std::unique_ptr<gloo_buffer> canary_;
  std::unique_ptr<gloo_buffer> announcer_;
  std::thread watcher_;  // last, for it uses the others
};

}  // namespace zero::detail
