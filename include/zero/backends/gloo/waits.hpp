// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <zero/backends/gloo/messages.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>

namespace zero::detail {

using gloo_buffer = ::gloo::transport::UnboundBuffer;

enum class gloo_way { receive, send };

/// Gloo takes a timeout of zero for "at once", and closes all connections when one passes; so its
/// timeouts are never used to end a wait.
constexpr std::chrono::milliseconds gloo_forever = std::chrono::hours(24 * 3650);

inline bool gloo_wait(gloo_buffer& which, gloo_way way) {
  return way == gloo_way::receive ? which.waitRecv(nullptr, gloo_forever)
                                  : which.waitSend(nullptr, gloo_forever);
}

/// Makes the wait in progress, or else the next one, return false.
inline void gloo_abort_wait(gloo_buffer& which, gloo_way way) noexcept {
  if (way == gloo_way::receive)
    which.abortWaitRecv();
  else
    which.abortWaitSend();
}

/// The waits of one rank for its messages. Each ends: with the message, by the first failure that
/// is recorded, or at the deadline of the operation, which a thread of this object watches. At the
/// deadline the connections are still open, so the peers can be told who was missing.
///
/// One thread waits; failures come from any.
class gloo_waits {
 public:
  using clock = transport_operation::clock;

  gloo_waits(int rank, std::chrono::nanoseconds timeout)
      : rank_(rank), timeout_(timeout), timer_([this] { keep_time(); }) {}
  gloo_waits(const gloo_waits&) = delete;
  gloo_waits& operator=(const gloo_waits&) = delete;
  ~gloo_waits() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    timer_wake_.notify_all();
    timer_.join();
  }

  /// Enters an operation, which has to stay where it is until leave(). It may be entered again
  /// until it is finished.
  void enter(const transport_operation& operation) noexcept {
    const std::lock_guard lock(mutex_);
    operation_ = &operation;
    next_ = operation.call.sequence;
    is_in_progress_ = true;
    expired_ = false;
    if (is_effective(failure_)) failed_.store(true, std::memory_order_release);
  }
  void leave() noexcept {
    const std::lock_guard lock(mutex_);
    operation_ = nullptr;
  }
  /// The operation is done. Returns whether a failure waited for that.
  bool finish(std::uint64_t sequence) noexcept {
    const std::lock_guard lock(mutex_);
    next_ = sequence + 1;
    is_in_progress_ = false;
    const bool was_deferred = failure_.kind != failure_kind::none && !has_failed();
    if (was_deferred) failed_.store(true, std::memory_order_release);
    return was_deferred;
  }

  /// The number of the operation in progress, or else of the next one.
  std::uint64_t next() const noexcept {
    const std::lock_guard lock(mutex_);
    return next_;
  }
  bool is_in_progress() const noexcept {
    const std::lock_guard lock(mutex_);
    return is_in_progress_;
  }

  /// Whether the wait ended with a message. Throws: what Gloo does, when a connection broke.
  bool wait(gloo_buffer& which, gloo_way way) {
    {
      const std::lock_guard lock(mutex_);
      if (has_failed() || expired_) return false;
      waiting_ = &which;
      waiting_way_ = way;
      was_interrupted_ = false;
    }
    bool done = false;
    try {
      done = gloo_wait(which, way);
    } catch (...) {
      forget_wait();
      throw;
    }
    const bool was_interrupted = forget_wait();
    // The interruption came too late, and would end the next wait instead.
    if (done && was_interrupted) gloo_wait(which, way);
    return done;
  }

  /// After the deadline: whether a message of this buffer has arrived in fact.
  bool has_ended(gloo_buffer& which, gloo_way way) {
    {
      const std::lock_guard lock(mutex_);
      expired_ = false;
      // Time enough for the device's thread to hand over what the kernel already has.
      look_until_ = clock::now() + std::chrono::milliseconds(5);
    }
    timer_wake_.notify_all();
    return wait(which, way);
  }

  /// Records a failure, unless an earlier one is recorded. Returns true when it takes effect now,
  /// which ends the wait in progress; finish() tells otherwise.
  bool record(const gloo_failure& failure) {
    {
      const std::lock_guard lock(mutex_);
      const bool is_first = failure_.kind == failure_kind::none;
      if (has_failed() || !(is_first || failure.since < failure_.since)) return false;
      failure_ = failure;
      if (!is_effective(failure)) return false;
      failed_.store(true, std::memory_order_release);
      interrupt_wait();
    }
    failure_seen_.notify_all();
    return true;
  }

  /// Whether the operation in progress, or else the next one, cannot be completed.
  bool has_failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  gloo_failure failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  /// Whether a failure is recorded within the limit.
  bool await_failure(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return failure_seen_.wait_for(lock, limit, [&] { return has_failed(); });
  }

  /// Requires: has_failed(), and an operation in progress.
  [[noreturn]] void throw_failure() const {
    const std::lock_guard lock(mutex_);
    communicator_failure where{.backend = "gloo",
                               .rank = rank_,
                               .peer = failure_.peer,
                               .operation = std::string(operation_->call.operation),
                               .sequence = operation_->call.sequence,
                               .elapsed_seconds = operation_->elapsed_seconds()};
    if (failure_.kind == failure_kind::mismatch) throw mismatch_error(failure_.reason, where);
    if (failure_.kind == failure_kind::timeout && !failure_.is_missing(rank_)) {
      throw timeout_error(failure_.reason, where);
    }
    throw aborted_error(failure_.reason, where);
  }

  /// The failure to record when these ranks have not come. Requires: an operation in progress.
  gloo_failure timeout_of(const std::vector<int>& missing) const {
    gloo_failure failure;
    failure.kind = failure_kind::timeout;
    failure.peer = missing.front();
    failure.since = operation_->call.sequence;
    std::string names;
    for (const int other : missing) {
      failure.add_missing(other);
      names += (names.empty() ? "" : ", ") + std::to_string(other);
    }
    failure.reason = "rank " + std::to_string(rank_) + " waited " +
                     std::to_string(operation_->elapsed_seconds()) + " s in " +
                     operation_->call.describe() + " for rank(s) " + names;
    return failure;
  }

 private:
  /// The caller holds the mutex.
  bool is_effective(const gloo_failure& failure) const noexcept {
    return failure.kind != failure_kind::none && (!is_in_progress_ || failure.since <= next_);
  }

  bool forget_wait() noexcept {
    const std::lock_guard lock(mutex_);
    waiting_ = nullptr;
    return was_interrupted_;
  }

  /// The caller holds the mutex.
  void interrupt_wait() noexcept {
    if (waiting_ == nullptr || was_interrupted_) return;
    was_interrupted_ = true;
    gloo_abort_wait(*waiting_, waiting_way_);
  }

  void keep_time() noexcept {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      const auto now = clock::now();
      // An operation that begins while this thread sleeps does not end before it wakes, so
      // operations need not wake it.
      auto next_look = now + timeout_;
      if (operation_ != nullptr && !expired_ && !has_failed()) {
        const auto end = std::max(operation_->deadline, look_until_);
        if (end <= now) {
          expired_ = true;
          interrupt_wait();
        } else {
          next_look = end;
        }
      }
      timer_wake_.wait_until(lock, next_look);
    }
  }

  int rank_;
  std::chrono::nanoseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable failure_seen_;
  std::condition_variable timer_wake_;
  gloo_failure failure_;
  std::atomic<bool> failed_{false};
  const transport_operation* operation_ = nullptr;
  std::uint64_t next_ = 0;
  bool is_in_progress_ = false;
  gloo_buffer* waiting_ = nullptr;
  gloo_way waiting_way_ = gloo_way::receive;
  clock::time_point look_until_{};
  bool was_interrupted_ = false;
  bool expired_ = false;
  bool is_stopping_ = false;
  std::thread timer_;  // last, for it uses the others
};

}  // namespace zero::detail
