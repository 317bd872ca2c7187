// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <zero/communicator.hpp>
#include <zero/detail/decorator.hpp>
#include <zero/range.hpp>

namespace zero {

/// What went through one kind of collective on this rank.
///
/// Units: elements of the full side without its padding, so a collective over a whole unit counts
/// its real elements once; the padding on a line of its own; bytes that this rank sends by direct
/// exchange, padding included.
struct collective_counters {
  std::uint64_t calls = 0;
  std::uint64_t elements = 0;
  std::uint64_t padding_elements = 0;
  std::uint64_t wire_bytes = 0;

  friend bool operator==(const collective_counters&, const collective_counters&) = default;
};

/// What went through a communicator on this rank, by kind of collective.
struct traffic_counters {
  std::array<collective_counters, 4> by_kind;

  const collective_counters& operator[](collective kind) const& noexcept {
    return by_kind[static_cast<std::size_t>(kind)];
  }
  /// By value where the whole is about to vanish, as in `metered.counters()[kind]`.
  collective_counters operator[](collective kind) const&& noexcept {
    return by_kind[static_cast<std::size_t>(kind)];
  }
  collective_counters& operator[](collective kind) & noexcept {
    return by_kind[static_cast<std::size_t>(kind)];
  }
  /// Over all kinds.
  std::uint64_t wire_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const collective_counters& kind : by_kind) sum += kind.wire_bytes;
    return sum;
  }

  friend bool operator==(const traffic_counters&, const traffic_counters&) = default;
};

/// One line of the log of `metered`.
struct logged_collective {
  collective operation;
  std::uint64_t elements;  ///< full side, without padding

  friend bool operator==(const logged_collective&, const logged_collective&) = default;
};

/// Counts what passes through a communicator, from nothing but the ranges it is given.
///
/// It is the independent witness for the engine's ledger. A call counts once it was accepted; at
/// size 1 nothing is sent, so nothing counts. Counters belong to the rank's calling thread.
template <HasTopology C>
class metered : public detail::decorator<C> {
 public:
  using work = typename C::work;
  using queue = typename C::queue;
  using memory_space = typename C::memory_space;

  using detail::decorator<C>::decorator;

  traffic_counters counters() const noexcept { return counters_; }

  /// Zeroes the counters and empties the log.
  void reset() noexcept {
    counters_ = {};
    log_.clear();
    unlogged_ = 0;
  }

  /// Starts a log of at most `capacity` calls; when it is full, further calls are only counted.
  void start_log(std::size_t capacity) {
    log_.clear();
    log_.shrink_to_fit();
    log_.reserve(capacity);
    log_capacity_ = capacity;
    unlogged_ = 0;
  }

  std::span<const logged_collective> log() const noexcept { return log_; }
  /// Calls that found the log full.
  std::uint64_t unlogged() const noexcept { return unlogged_; }

  template <class T, class U>
    requires CanReduceScatter<C, T, U>
  work reduce_scatter(range<const T, partial, memory_space> in, range<U, shard, memory_space> out,
                      reduce_options options, queue on) {
    work started = this->inner().reduce_scatter(in, out, options, on);
    // The shards of the other ranks leave this rank, as T: the sum is made where it is wanted.
    count(collective::reduce_scatter, in.size(), in.padding(), out.size() * sizeof(T));
    return started;
  }

  template <class T>
    requires CanAllGather<C, T>
  work all_gather(range<const T, shard, memory_space> in, range<T, full, memory_space> out,
                  queue on) {
    work started = this->inner().all_gather(in, out, on);
    count(collective::all_gather, out.size(), out.padding(), in.size() * sizeof(T));
    return started;
  }

  work all_reduce(range<double, full, memory_space> values, queue on)
    requires CanAllReduce<C>
  {
    const auto size = values.size();
    const auto padding = values.padding();
    work started = this->inner().all_reduce(values, on);
    count(collective::all_reduce, size, padding, size * sizeof(double));
    return started;
  }

  template <class T>
    requires CanBroadcast<C, T>
  work broadcast(range<T, full, memory_space> values, int root, queue on) {
    work started = this->inner().broadcast(values, root, on);
    count(collective::broadcast, values.size(), values.padding(),
          this->rank() == root ? values.size() * sizeof(T) : 0);
    return started;
  }

  /// The part has counters of its own.
  auto split(int color)
    requires CanSplit<C>
  {
    return metered<detail::split_of<C>>(detail::split_to_heap(this->inner(), color));
  }

 private:
  void count(collective kind, std::uint64_t full_elements, std::uint64_t padding,
             std::uint64_t bytes_per_peer) noexcept {
    const int peers = this->size() - 1;
    if (peers == 0) return;
    collective_counters& counter = counters_[kind];
    ++counter.calls;
    counter.elements += full_elements - padding;
    counter.padding_elements += padding;
    counter.wire_bytes += static_cast<std::uint64_t>(peers) * bytes_per_peer;
    if (log_.size() < log_capacity_) {
      log_.push_back({kind, full_elements - padding});
    } else if (log_capacity_ != 0) {
      ++unlogged_;
    }
  }

  traffic_counters counters_{};
  std::vector<logged_collective> log_;
  std::size_t log_capacity_ = 0;
  std::uint64_t unlogged_ = 0;
};

template <class C>
metered(C&) -> metered<C>;

}  // namespace zero
