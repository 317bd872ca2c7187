// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/detail/decorator.hpp>
#include <zero/range.hpp>

namespace zero {

/// Settings of `delaying`.
struct delaying_options {
  /// Each call starts after a random time below this; zero: calls pass straight through.
  std::chrono::nanoseconds max_delay{0};
  std::uint64_t seed = 0;
};

namespace detail {

/// Runs operations in order on one thread, each after its delay. Operations live in a ring of
/// fixed size, so that starting one allocates nothing.
class delayed_queue {
 public:
  static constexpr std::size_t capacity = 64;
  static constexpr std::size_t operation_bytes = 96;

  delayed_queue() = default;
  delayed_queue(const delayed_queue&) = delete;
  delayed_queue& operator=(const delayed_queue&) = delete;
  ~delayed_queue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (worker_.joinable()) worker_.join();
  }

  void start() {
    if (!worker_.joinable()) worker_ = std::thread([this] { run(); });
  }

  /// Returns the operation's number, from 1. Blocks while the ring is full.
  /// Throws: what an earlier operation threw.
  template <class Operation>
  std::uint64_t push(const Operation& operation, std::chrono::nanoseconds delay) {
    static_assert(std::is_trivially_copyable_v<Operation> && sizeof(Operation) <= operation_bytes);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return issued_ - finished_ < capacity; });
    if (error_) std::rethrow_exception(error_);
    slot& free = ring_[issued_ % capacity];
    std::memcpy(free.storage, &operation, sizeof(Operation));
    free.delay = delay;
    free.call = [](const std::byte* storage) {
      (*std::launder(reinterpret_cast<const Operation*>(storage)))();
    };
    ++issued_;
    changed_.notify_all();
    return issued_;
  }

  /// Throws: what this operation, or one before it, threw.
  void wait(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ >= number; });
    if (error_ && number >= failed_number_) std::rethrow_exception(error_);
  }

  void drain() noexcept {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_ == issued_; });
  }

  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return finished_ == issued_;
  }

  /// Delays end now; the operations that wait for them fail by the inner communicator's abort.
  void hurry() noexcept {
    const std::lock_guard lock(mutex_);
    hurrying_ = true;
    changed_.notify_all();
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
      changed_.wait(lock, [this] { return stopping_ || issued_ != finished_; });
      if (issued_ == finished_) return;
      slot& next = ring_[finished_ % capacity];
      changed_.wait_for(lock, next.delay, [this] { return hurrying_ || stopping_; });
      if (!error_) {
        lock.unlock();
        std::exception_ptr failure = call(next);
        lock.lock();
        if (failure) failed_number_ = finished_ + 1;
        error_ = std::move(failure);
      }
      ++finished_;
      changed_.notify_all();
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

  std::array<slot, capacity> ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t issued_ = 0;
  std::uint64_t finished_ = 0;
  std::uint64_t failed_number_ = 0;
  std::exception_ptr error_;
  bool hurrying_ = false;
  bool stopping_ = false;
  std::thread worker_;
};

/// The handle of an operation of a delayed_queue; complete where it has none.
template <class Queue>
class delayed_work {
 public:
  delayed_work() noexcept = default;
  delayed_work(delayed_queue& operations, std::uint64_t number) noexcept
      : operations_(&operations), number_(number) {}

  delayed_work(delayed_work&& other) noexcept
      : operations_(std::exchange(other.operations_, nullptr)), number_(other.number_) {}
  delayed_work& operator=(delayed_work&& other) noexcept {
    if (this != &other) {
      drop();
      operations_ = std::exchange(other.operations_, nullptr);
      number_ = other.number_;
    }
    return *this;
  }
  delayed_work(const delayed_work&) = delete;
  delayed_work& operator=(const delayed_work&) = delete;
  ~delayed_work() { drop(); }

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

  delayed_queue* operations_ = nullptr;
  std::uint64_t number_ = 0;
};

}  // namespace detail

/// Makes a host communicator asynchronous: a thread of its own runs the calls, in order, each after
/// a seeded random delay. It shows whether buffers are left alone while they are in flight.
///
/// With max_delay zero calls pass straight through. Starting a call allocates nothing. An error
/// surfaces in wait() of its handle and in every later call.
template <HasTopology C>
class delaying : public detail::decorator<C> {
 public:
  using queue = typename C::queue;
  using memory_space = typename C::memory_space;
  using work = detail::delayed_work<queue>;
  static_assert(std::is_same_v<memory_space, host_space>,
                "zero::delaying: a host communicator is needed, others are asynchronous already");

  explicit delaying(C& inner, delaying_options options = {}) : detail::decorator<C>(inner) {
    configure(options);
  }
  explicit delaying(std::unique_ptr<C> inner, delaying_options options = {})
      : detail::decorator<C>(std::move(inner)) {
    configure(options);
  }
  ~delaying() {
    if (!operations_.is_idle()) abort("delaying: destroyed with operations in flight");
  }

  /// Waits for what was started, then changes the delays and restarts their sequence.
  void configure(delaying_options options) {
    operations_.drain();
    options_ = options;
    // Ranks draw from different sequences, or all would be late by the same time.
    random_ = options.seed * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(this->rank()) + 1;
    if (options.max_delay.count() > 0) operations_.start();
  }

  void abort(std::string_view reason) noexcept {
    this->inner().abort(reason);
    operations_.hurry();
  }

  template <class T, class U>
    requires CanReduceScatter<C, T, U>
  work reduce_scatter(range<const T, partial, memory_space> in, range<U, shard, memory_space> out,
                      reduce_options options, queue on) {
    return issue([inner = &this->inner(), in, out, options, on] {
      inner->reduce_scatter(in, out, options, on).wait(on);
    });
  }

  template <class T>
    requires CanAllGather<C, T>
  work all_gather(range<const T, shard, memory_space> in, range<T, full, memory_space> out,
                  queue on) {
    return issue([inner = &this->inner(), in, out, on] {
      inner->all_gather(in, out, on).wait(on);
    });
  }

  work all_reduce(range<double, full, memory_space> values, queue on)
    requires CanAllReduce<C>
  {
    return issue([inner = &this->inner(), values, on] { inner->all_reduce(values, on).wait(on); });
  }

  template <class T>
    requires CanBroadcast<C, T>
  work broadcast(range<T, full, memory_space> values, int root, queue on) {
    return issue([inner = &this->inner(), values, root, on] {
      inner->broadcast(values, root, on).wait(on);
    });
  }

  /// Waits for what was started. The part has the same delays.
  auto split(int color)
    requires CanSplit<C>
  {
    operations_.drain();
    return delaying<detail::split_of<C>>(detail::split_to_heap(this->inner(), color), options_);
  }

 private:
  template <class Operation>
  work issue(const Operation& operation) {
    if (options_.max_delay.count() <= 0) {
      operation();
      return {};
    }
    return {operations_, operations_.push(operation, next_delay())};
  }

  /// splitmix64, as published by its author for the public domain.
  std::chrono::nanoseconds next_delay() noexcept {
    random_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = random_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    z ^= z >> 31U;
    return std::chrono::nanoseconds(z % static_cast<std::uint64_t>(options_.max_delay.count()));
  }

  delaying_options options_{};
  std::uint64_t random_ = 0;
  detail::delayed_queue operations_;
};

}  // namespace zero
