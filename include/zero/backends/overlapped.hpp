// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/detail/collective_checks.hpp>
#include <zero/detail/decorator.hpp>
#include <zero/detail/worker_queue.hpp>
#include <zero/range.hpp>

namespace zero {

/// Makes a host communicator asynchronous: a thread of its own runs the calls, in order, while the
/// caller computes. A reduce-scatter of one unit then runs during the backward pass of the next,
/// and parameters are gathered before they are needed.
///
/// Results are those of the inner communicator, bit for bit: the same calls reach it in the same
/// order. Starting a call allocates nothing, and blocks only while 64 calls are in flight. An
/// all_reduce that finds nothing in flight runs on the calling thread: it is short and waited for
/// at once, and handing it to another thread and back more than doubles its time (13 us become
/// 31 us between two threads on two cores).
/// Wrong ranges are a usage_error of the call itself. Any other error surfaces in wait() of its
/// handle and of those started after it, and in every later call. abort() may come from any thread.
/// A destructor with operations in flight aborts them; it blocks no longer than the inner
/// operation's deadline.
/// The inner communicator is called from two threads, never at the same time (under MPI:
/// MPI_THREAD_SERIALIZED, or MPI_THREAD_MULTIPLE where there are several).
template <HasTopology C>
class overlapped : public detail::decorator<C> {
 public:
  using queue = typename C::queue;
  using memory_space = typename C::memory_space;
  using work = detail::queued_work<queue>;
  static_assert(std::is_same_v<memory_space, host_space>,
                "zero::overlapped: a host communicator is needed, others are asynchronous already");

  explicit overlapped(C& inner) : detail::decorator<C>(inner) { operations_.start(); }
  explicit overlapped(std::unique_ptr<C> inner) : detail::decorator<C>(std::move(inner)) {
    operations_.start();
  }
  ~overlapped() {
    if (!operations_.is_idle()) this->abort("overlapped: destroyed with operations in flight");
  }

  template <class T, class U>
    requires CanReduceScatter<C, T, U>
  work reduce_scatter(range<const T, partial, memory_space> in, range<U, shard, memory_space> out,
                      reduce_options options = {}, queue on = {}) {
    detail::check_full_and_shard(call_site("reduce_scatter"), in.data(), in.size(), out.data(),
                                 out.size());
    return issue([inner = &this->inner(), in, out, options, on] {
      inner->reduce_scatter(in, out, options, on).wait(on);
    });
  }

  template <class T>
    requires CanAllGather<C, T>
  work all_gather(range<const T, shard, memory_space> in, range<T, full, memory_space> out,
                  queue on = {}) {
    detail::check_full_and_shard(call_site("all_gather"), out.data(), out.size(), in.data(),
                                 in.size());
    return issue([inner = &this->inner(), in, out, on] {
      inner->all_gather(in, out, on).wait(on);
    });
  }

  work all_reduce(range<double, full, memory_space> values, queue on = {})
    requires CanAllReduce<C>
  {
    detail::check_values(call_site("all_reduce"), values.data(), values.size());
    const auto operation = [inner = &this->inner(), values, on] {
      inner->all_reduce(values, on).wait(on);
    };
    if (operations_.run_if_idle(operation)) return {};
    return issue(operation);
  }

  template <class T>
    requires CanBroadcast<C, T>
  work broadcast(range<T, full, memory_space> values, int root, queue on = {}) {
    detail::check_values(call_site("broadcast"), values.data(), values.size());
    detail::check_root(call_site("broadcast"), root);
    return issue([inner = &this->inner(), values, root, on] {
      inner->broadcast(values, root, on).wait(on);
    });
  }

  /// Waits for what was started. The part has a thread of its own.
  auto split(int color)
    requires CanSplit<C>
  {
    operations_.drain();
    return overlapped<detail::split_of<C>>(detail::split_to_heap(this->inner(), color));
  }

 private:
  detail::checked_call call_site(std::string_view operation) const noexcept {
    return {this->backend_name(), this->rank(), this->size(), operation};
  }

  template <class Operation>
  work issue(const Operation& operation) {
    return {operations_, operations_.push(operation)};
  }

  detail::worker_queue operations_;
};

}  // namespace zero
