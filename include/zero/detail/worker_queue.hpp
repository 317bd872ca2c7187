// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

#include <zero/communicator.hpp>

namespace zero::detail {

/// Runs operations in the order in which they were started, on one thread of its own.
///
/// Operations live in a ring of fixed size, so starting one allocates nothing. The first one that
/// throws ends the queue: those behind it are not run, and what it threw is thrown by the wait for
/// it, the waits for those behind it, and every later start. One thread starts operations.
class worker_queue {
 public:
  static constexpr std::size_t capacity = 64;
  static constexpr std::size_t operation_bytes = 96;

  worker_queue() = default;
  worker_queue(const worker_queue&) = delete;
  worker_queue& operator=(const worker_queue&) = delete;
  /// Waits for what was started.
  ~worker_queue() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    started_.notify_one();
    if (worker_.joinable()) worker_.join();
  }

  /// Starts the thread, without which push must not be called.
  void start() {
    if (!worker_.joinable()) worker_ = std::thread([this] { run(); });
  }

  /// Returns the operation's number, from 1; it runs after a delay of its own. Blocks while the
  /// ring is full. Throws: what an earlier operation threw.
  template <class Operation>
  std::uint64_t push(const Operation& operation, std::chrono::nanoseconds delay = {}) {
    static_assert(std::is_trivially_copyable_v<Operation> && sizeof(Operation) <= operation_bytes);
    std::unique_lock lock(mutex_);
    finished_one_.wait(lock, [this] { return issued_ - finished_ < capacity; });
    if (error_) std::rethrow_exception(error_);
    slot& free = ring_[issued_ % capacity];
    std::memcpy(free.storage, &operation, sizeof(Operation));
    free.delay = delay;
    free.call = [](const std::byte* storage) {
      (*std::launder(reinterpret_cast<const Operation*>(storage)))();
    };
    const std::uint64_t number = ++issued_;
    lock.unlock();
    started_.notify_one();
    return number;
  }

  /// Runs the operation on the calling thread when nothing is in flight, which keeps the order
  /// because no other thread starts operations. Returns false when something is in flight.
  /// Throws: what this operation, or an earlier one, threw.
  template <class Operation>
  bool run_if_idle(const Operation& operation) {
    {
      const std::lock_guard lock(mutex_);
      if (issued_ != finished_) return false;
      if (error_) std::rethrow_exception(error_);
    }
    try {
      operation();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      fail(issued_ + 1, std::current_exception());
      throw;
    }
    return true;
  }

  /// Throws: what this operation, or one before it, threw.
  void wait(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    finished_one_.wait(lock, [&] { return finished_ >= number; });
    if (error_ && number >= failed_number_) std::rethrow_exception(error_);
  }

  void drain() noexcept {
    std::unique_lock lock(mutex_);
    finished_one_.wait(lock, [this] { return finished_ == issued_; });
  }

  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return finished_ == issued_;
  }

  /// Delays end now, those to come as well.
  void hurry() noexcept {
    {
      const std::lock_guard lock(mutex_);
      is_hurrying_ = true;
    }
    started_.notify_one();
  }

 private:
  struct slot {
    void (*call)(const std::byte*) = nullptr;
    std::chrono::nanoseconds delay{0};
    alignas(std::max_align_t) std::byte storage[operation_bytes];
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      started_.wait(lock, [this] { return is_stopping_ || issued_ != finished_; });
      if (issued_ == finished_) return;
      const slot& next = ring_[finished_ % capacity];
      if (next.delay.count() > 0) {
        started_.wait_for(lock, next.delay, [this] { return is_hurrying_ || is_stopping_; });
      }
      if (!error_) {
        lock.unlock();
        std::exception_ptr failure = call(next);
        lock.lock();
        if (failure) fail(finished_ + 1, std::move(failure));
      }
      ++finished_;
      finished_one_.notify_all();
    }
  }

  static std::exception_ptr call(const slot& next) noexcept {
    try {
      next.call(next.storage);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  /// The caller holds the mutex.
  void fail(std::uint64_t number, std::exception_ptr failure) noexcept {
    failed_number_ = number;
    error_ = std::move(failure);
  }

  std::array<slot, capacity> ring_;
  std::mutex mutex_;
  std::condition_variable started_;       // the worker waits for it
  std::condition_variable finished_one_;  // the others do
  std::uint64_t issued_ = 0;
  std::uint64_t finished_ = 0;
  std::uint64_t failed_number_ = 0;
  std::exception_ptr error_;
  bool is_hurrying_ = false;
  bool is_stopping_ = false;
  std::thread worker_;
};

/// The handle of an operation of a worker_queue; complete where it has none.
template <class Queue>
class queued_work {
 public:
  queued_work() noexcept = default;
  queued_work(worker_queue& operations, std::uint64_t number) noexcept
      : operations_(&operations), number_(number) {}

  queued_work(queued_work&& other) noexcept
      : operations_(std::exchange(other.operations_, nullptr)), number_(other.number_) {}
  queued_work& operator=(queued_work&& other) noexcept {
    if (this != &other) {
      drop();
      operations_ = std::exchange(other.operations_, nullptr);
      number_ = other.number_;
    }
    return *this;
  }
  queued_work(const queued_work&) = delete;
  queued_work& operator=(const queued_work&) = delete;
  ~queued_work() { drop(); }

  void wait(Queue) {
    if (auto* operations = std::exchange(operations_, nullptr)) operations->wait(number_);
  }

 private:
  /// The error, if any, stays in the queue, which throws it at the next call.
  void drop() noexcept {
    try {
      wait({});
    } catch (...) {
    }
  }

  worker_queue* operations_ = nullptr;
  std::uint64_t number_ = 0;
};

static_assert(Work<queued_work<host_queue>, host_queue>);
static_assert(sizeof(queued_work<host_queue>) <= 64, "any_work holds this many bytes");

}  // namespace zero::detail
