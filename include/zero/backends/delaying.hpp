// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/detail/decorator.hpp>
#include <zero/detail/worker_queue.hpp>
#include <zero/range.hpp>

namespace zero {

/// Settings of `delaying`.
struct delaying_options {
  /// Each call starts after a random time below this; zero: calls pass straight through.
  std::chrono::nanoseconds max_delay{0};
  std::uint64_t seed = 0;
};

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
  using work = detail::queued_work<queue>;
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
  detail::worker_queue operations_;
};

}  // namespace zero
