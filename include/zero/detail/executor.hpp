// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include <zero/communicator.hpp>
#include <zero/kernels/cast.hpp>
#include <zero/memory.hpp>
#include <zero/range.hpp>

namespace zero::detail {

/// Who works on the memory of a space for an engine: element kernels, copies from and to the host,
/// and the order between queues. This header has the host's; <zero/cuda.hpp> brings the devices'.
///
/// Calls that take a queue are ordered in it and do not wait, unless they say so.
template <class Space>
class executor;

template <>
class executor<host_space> {
 public:
  template <HasTopology C>
  explicit executor(const C& /*communicator*/) noexcept {}

  /// Where an arena comes from by default.
  memory_resource& memory() noexcept { return memory_; }

  template <class T>
  void fill_zero(T* values, std::uint64_t count, host_queue) const {
    kernels::fill_zero(host_space{}, values, count);
  }
  template <class A, class B>
  void convert(const A* input, B* output, std::uint64_t count, host_queue) const {
    kernels::convert(host_space{}, input, output, count);
  }
  template <class G, class A>
  void accumulate(const G* input, A* sums, std::uint64_t count, host_queue) const {
    kernels::accumulate(host_space{}, input, sums, count);
  }

  /// From the host; `values` may change again when it returns.
  template <class T>
  void upload(const T* values, T* there, std::uint64_t count, host_queue) const {
    kernels::convert(host_space{}, values, there, count);
  }
  /// To the host; waits for the values.
  template <class T>
  void download(const T* there, T* values, std::uint64_t count, host_queue) const {
    kernels::convert(host_space{}, there, values, count);
  }

  /// What follows in `after` runs after all that `before` holds.
  void follow(host_queue /*before*/, host_queue /*after*/) const noexcept {}

  /// Called when a step is enqueued; `wait_for_gathers` would wait for the updated parameters.
  template <class Wait>
  void finish_step(host_queue, Wait /*wait_for_gathers*/) const noexcept {}

  /// Host values as an operand of a collective: on the host they are used where they lie.
  template <class T>
  class mirror {
   public:
    mirror(executor& /*on*/, std::span<T> values) noexcept : values_(values) {}

    T* data() const noexcept { return values_.data(); }
    /// The first `count` values, host to operand.
    void upload(std::uint64_t /*count*/, host_queue) const noexcept {}
    /// The first `count` values, operand to host; waits for them.
    void download(std::uint64_t /*count*/, host_queue) const noexcept {}

   private:
    std::span<T> values_;
  };

 private:
  host_memory memory_;
};

}  // namespace zero::detail
