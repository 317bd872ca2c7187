// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/collective_checks.hpp>
#include <zero/detail/completed_work.hpp>
#include <zero/detail/threads_state.hpp>
#include <zero/error.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/range.hpp>

namespace zero {

/// Settings of a world of threads.
struct threads_options {
  /// How long a rank waits for its peers in one collective before it throws timeout_error.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
};

/// The ranks of one process: what their communicators share.
///
/// Copies refer to the same world. Most programs call `run_threads`, which makes one.
class threads_world {
 public:
  /// Throws: usage_error unless size >= 1 and the timeout is positive.
  explicit threads_world(int size, threads_options options = {})
      : state_(make(size, options.timeout)) {}

  int size() const noexcept { return state_->size(); }

  /// Ends every wait in this world and in the worlds split from it with an aborted_error that
  /// carries `reason`. Any thread; only the first reason is kept.
  void abort(std::string_view reason) noexcept { state_->abort(-1, reason); }

 private:
  friend class threads_communicator;

  static std::shared_ptr<detail::threads_state> make(int size, std::chrono::nanoseconds timeout) {
    if (size < 1) {
      throw usage_error("zero::threads_world: size " + std::to_string(size) + " is below 1");
    }
    if (timeout <= std::chrono::nanoseconds::zero()) {
      throw usage_error("zero::threads_world: timeout of " + std::to_string(timeout.count()) +
                        " ns is not positive");
    }
    // A deadline has to be representable; nobody waits for ten years.
    const std::chrono::nanoseconds longest = std::chrono::hours(24 * 3650);
    return std::make_shared<detail::threads_state>(size, timeout < longest ? timeout : longest);
  }

  std::shared_ptr<detail::threads_state> state_;
};

/// One rank of a world whose ranks are threads of this process.
///
/// Peers' buffers are read where they lie, so a reduce-scatter is one pass over memory. The order
/// of collectives is always checked: ranks that disagree about operation, type, count, root or
/// scale all get a mismatch_error before any payload moves. After a failure every later call
/// throws at once. A rank that destroys its communicator ends the world for its peers.
/// Collective: every operation but rank, size, abort, claim and unclaim; all ranks, same order,
/// one call at a time per rank. The calls block and allocate nothing unless they throw.
/// Throws: aborted_error, mismatch_error, timeout_error; usage_error for wrong ranges, before
/// peers are involved.
class threads_communicator {
 public:
  using memory_space = host_space;
  using queue = host_queue;
  using work = detail::completed_work;

  static constexpr summation sums = summation::rank_tree;
  static constexpr std::string_view backend_name() noexcept { return "threads"; }

  /// Throws: usage_error when the rank does not exist or was taken before.
  threads_communicator(const threads_world& world, int rank)
      : threads_communicator(world.state_, rank) {}

  threads_communicator(threads_communicator&&) noexcept = default;
  threads_communicator& operator=(threads_communicator&& other) noexcept {
    if (this != &other) {
      if (state_) state_->depart(rank_);
      state_ = std::move(other.state_);
      rank_ = other.rank_;
    }
    return *this;
  }
  threads_communicator(const threads_communicator&) = delete;
  threads_communicator& operator=(const threads_communicator&) = delete;
  ~threads_communicator() {
    if (state_) state_->depart(rank_);
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return state_->size(); }

  /// Ends every wait of every rank with an aborted_error that names this rank. Any thread,
  /// any number of times; the first reason is kept.
  void abort(std::string_view reason) noexcept { state_->abort(rank_, reason); }

  bool claim() noexcept { return state_->claim(rank_); }
  void unclaim() noexcept { state_->unclaim(rank_); }

  /// Rank r receives the sum over ranks of shard r, in rank_tree order, times options.scale.
  template <detail::SummableElement T, detail::SumOutputOf<T> U>
  work reduce_scatter(range<const T, partial> in, range<U, shard> out, reduce_options options = {},
                      queue = {}) {
    detail::check_full_and_shard(call_site("reduce_scatter"), in.data(), in.size(), out.data(),
                                 out.size());
    state_->enter(rank_, detail::describe_sum<T, U>(in.size(), options.scale), in.data());
    // Of every input this rank reads only shard `rank`, and it writes only `out`. In place, `out`
    // is that shard of its own input, which no peer reads: no rank writes what another one reads.
    const auto own_shard = static_cast<std::uint64_t>(rank_) * out.size();
    kernels::fold(host_space{}, state_->buffers<T>(rank_, own_shard), out.data(), out.size(),
                  options.scale);
    state_->meet();
    return {};
  }

  /// Every rank receives all shards, in rank order.
  template <detail::TransferableElement T>
  work all_gather(range<const T, shard> in, range<T, full> out, queue = {}) {
    detail::check_full_and_shard(call_site("all_gather"), out.data(), out.size(), in.data(),
                                 in.size());
    state_->enter(rank_, detail::describe_call<T>("all_gather", out.size()), in.data());
    // In place, `in` is shard `rank` of `out`: the one shard that is not written here.
    for (int peer = 0; peer < size(); ++peer) {
      copy(out.data() + static_cast<std::uint64_t>(peer) * in.size(),
           static_cast<const T*>(state_->buffer(peer)), in.size());
    }
    state_->meet();
    return {};
  }

  /// The values are replaced by their sums over ranks, in rank_tree order.
  work all_reduce(range<double, full> values, queue = {}) {
    detail::check_values(call_site("all_reduce"), values.data(), values.size());
    state_->enter(rank_, detail::describe_call<double>("all_reduce", values.size()), values.data());
    const auto scratch = state_->scratch(rank_);
    for (std::uint64_t first = 0; first < values.size(); first += scratch.size()) {
      const auto count = std::min<std::uint64_t>(scratch.size(), values.size() - first);
      kernels::fold(host_space{}, state_->buffers<double>(rank_, first), scratch.data(), count,
                    1.0F);
      // Every rank has read these elements before any rank overwrites its own; the next elements
      // are other ones, so one meeting per piece is enough.
      state_->meet();
      copy(values.data() + first, scratch.data(), count);
    }
    return {};
  }

  /// Every rank receives rank `root`'s values.
  template <detail::TransferableElement T>
  work broadcast(range<T, full> values, int root, queue = {}) {
    detail::check_values(call_site("broadcast"), values.data(), values.size());
    detail::check_root(call_site("broadcast"), root);
    detail::collective_call call = detail::describe_call<T>("broadcast", values.size());
    call.root = root;
    state_->enter(rank_, call, values.data());
    copy(values.data(), static_cast<const T*>(state_->buffer(root)), values.size());
    state_->meet();
    return {};
  }

  /// A communicator among the ranks that gave the same color, in rank order.
  ///
  /// It keeps this world's timeout. An abort of this world reaches it, not the other way round.
  threads_communicator split(int color) {
    detail::collective_call call;
    call.operation = "split";
    state_->color(rank_) = color;
    state_->enter(rank_, call, nullptr);
    const auto part = state_->part_of(rank_);
    if (part.leader == rank_) found_offspring(part.members);
    state_->meet();
    auto child = state_->offspring(part.leader);
    state_->meet();
    state_->offspring(rank_).reset();
    if (!child) throw error("zero::threads_communicator::split: out of memory");
    return {std::move(child), part.rank};
  }

 private:
  threads_communicator(std::shared_ptr<detail::threads_state> state, int rank)
      : state_(std::move(state)), rank_(rank) {
    if (rank < 0 || rank >= state_->size() || !state_->join(rank)) {
      throw usage_error("zero::threads_communicator: rank " + std::to_string(rank) +
                        " of a world of " + std::to_string(state_->size()) +
                        " does not exist or was taken before");
    }
  }

  detail::checked_call call_site(std::string_view operation) const noexcept {
    return {backend_name(), rank_, size(), operation};
  }

  template <class T>
  static void copy(T* to, const T* from, std::uint64_t count) noexcept {
    if (count != 0 && to != from) std::memcpy(to, from, count * sizeof(T));
  }

  /// A peer waits for the outcome, so a failure is left as a null pointer for all to see.
  void found_offspring(int members) noexcept {
    try {
      auto child = std::make_shared<detail::threads_state>(members, state_->timeout());
      state_->adopt(child);
      state_->offspring(rank_) = std::move(child);
    } catch (...) {
      state_->offspring(rank_).reset();
    }
  }

  std::shared_ptr<detail::threads_state> state_;
  int rank_;
};

static_assert(Communicator<threads_communicator, float> && CanSplit<threads_communicator>);
static_assert(Communicator<threads_communicator, bfloat16>);
static_assert(CanReduceScatter<threads_communicator, bfloat16, float>);
static_assert(CanAllGather<threads_communicator, std::uint16_t>);

}  // namespace zero
