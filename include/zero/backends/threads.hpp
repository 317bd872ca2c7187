// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <zero/communicator.hpp>
#include <zero/detail/collective_checks.hpp>
#include <zero/detail/completed_work.hpp>
#include <zero/detail/threads_state.hpp>
#include <zero/error.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/numeric/element_traits.hpp>
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
    detail::collective_call call = describe<T>("reduce_scatter", in.size());
    call.output_element = element_traits<U>::name;
    call.output_wire_id = element_traits<U>::wire_id;
    call.scale_bits = std::bit_cast<std::uint32_t>(options.scale);
    state_->enter(rank_, call, in.data());
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
    state_->enter(rank_, describe<T>("all_gather", out.size()), in.data());
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
    state_->enter(rank_, describe<double>("all_reduce", values.size()), values.data());
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
    if (root < 0) detail::throw_misuse(backend_name(), rank_, "broadcast", "root is negative");
    detail::check_values(call_site("broadcast"), values.data(), values.size(), root);
    detail::collective_call call = describe<T>("broadcast", values.size());
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
    int leader = -1;
    int members = 0;
    int new_rank = 0;
    for (int peer = 0; peer < size(); ++peer) {
      if (state_->color(peer) != color) continue;
      if (leader < 0) leader = peer;
      if (peer < rank_) ++new_rank;
      ++members;
    }
    if (leader == rank_) found_offspring(members);
    state_->meet();
    auto child = state_->offspring(leader);
    state_->meet();
    state_->offspring(rank_).reset();
    if (!child) throw error("zero::threads_communicator::split: out of memory");
    return {std::move(child), new_rank};
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
  static detail::collective_call describe(std::string_view operation, std::uint64_t count) {
    detail::collective_call call;
    call.operation = operation;
    call.element = call.output_element = element_traits<T>::name;
    call.wire_id = call.output_wire_id = element_traits<T>::wire_id;
    call.count = count;
    return call;
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

/// What the ranks of one `try_run_threads` returned or threw.
template <class R>
class run_result {
 public:
  /// True when every rank returned.
  bool ok() const noexcept { return failed_rank_ < 0; }

  /// The rank that failed first, -1 when none did. Peers that only learned of its failure, by an
  /// aborted_error, are not a cause.
  int failed_rank() const noexcept { return failed_rank_; }

  /// The exception of the first cause, null when there is none.
  std::exception_ptr cause() const noexcept { return ok() ? nullptr : error(failed_rank_); }

  /// What this rank threw, null when it returned.
  std::exception_ptr error(int rank) const { return errors_.at(static_cast<std::size_t>(rank)); }

  /// The ranks' values in rank order. Throws: the first cause, the object itself, when not ok().
  std::vector<R> values() &&
    requires(!std::is_void_v<R>)
  {
    rethrow();
    std::vector<R> result;
    result.reserve(values_.size());
    for (auto& value : values_) result.push_back(std::move(*value));
    return result;
  }

  /// Throws: the first cause, the object itself, when not ok().
  void rethrow() const {
    if (!ok()) std::rethrow_exception(cause());
  }

 private:
  template <class Function>
  friend auto try_run_threads(int size, threads_options options, Function&& function)
      -> run_result<std::invoke_result_t<Function&, threads_communicator&>>;

  using stored = std::conditional_t<std::is_void_v<R>, std::monostate, R>;

  explicit run_result(int size)
      : values_(static_cast<std::size_t>(size)), errors_(static_cast<std::size_t>(size)) {}

  std::vector<std::optional<stored>> values_;
  std::vector<std::exception_ptr> errors_;
  int failed_rank_ = -1;
};

namespace detail {

/// The text of the exception in flight, and whether it only passes on the failure of another rank.
struct caught {
  std::string reason;
  bool secondary;
};

inline caught describe_current_exception() {
  try {
    throw;
  } catch (const aborted_error& e) {
    return {e.what(), true};
  } catch (const std::exception& e) {
    return {e.what(), false};
  } catch (...) {
    return {"an exception that is not a std::exception", false};
  }
}

/// Which rank failed first: the first that threw on its own account, else the first that threw.
class first_cause {
 public:
  void record(int rank, bool secondary) {
    const std::lock_guard lock(mutex_);
    int& slot = secondary ? passed_on_ : own_;
    if (slot < 0) slot = rank;
  }
  int rank() const noexcept { return own_ >= 0 ? own_ : passed_on_; }

 private:
  std::mutex mutex_;
  int own_ = -1;
  int passed_on_ = -1;
};

}  // namespace detail

/// Calls `function(threads_communicator&)` on `size` threads, one per rank, and joins them.
///
/// A rank that throws aborts the world, so its peers leave their collectives by aborted_error.
/// Throws: usage_error for a wrong size or timeout; std::system_error when a thread cannot start.
template <class Function>
auto try_run_threads(int size, threads_options options, Function&& function)
    -> run_result<std::invoke_result_t<Function&, threads_communicator&>> {
  using result_type = std::invoke_result_t<Function&, threads_communicator&>;
  const threads_world world(size, options);
  run_result<result_type> result(size);
  detail::first_cause cause;

  const auto run_rank = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    // Outside of the try block: the abort must come before the destructor tells the peers that
    // this rank left, or they would learn that it left and not why.
    threads_communicator communicator(world, rank);
    try {
      if constexpr (std::is_void_v<result_type>) {
        function(communicator);
      } else {
        result.values_[index].emplace(function(communicator));
      }
    } catch (...) {
      result.errors_[index] = std::current_exception();
      const detail::caught failure = detail::describe_current_exception();
      cause.record(rank, failure.secondary);
      communicator.abort(failure.reason);
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  std::exception_ptr start_failure;
  for (int rank = 0; rank < size && !start_failure; ++rank) {
    try {
      threads.emplace_back(run_rank, rank);
    } catch (...) {
      start_failure = std::current_exception();
      threads_world(world).abort("a thread could not be started");
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (start_failure) std::rethrow_exception(start_failure);
  result.failed_rank_ = cause.rank();
  return result;
}

/// As above, with the default options.
template <class Function>
auto try_run_threads(int size, Function&& function) {
  return try_run_threads(size, threads_options{}, std::forward<Function>(function));
}

/// Runs the ranks and returns the vector of their results in rank order (nothing for void).
///
/// Throws: the first cause, as the exception object that the rank threw, so that it can be caught
/// by its type. `try_run_threads` also tells which rank it was.
template <class Function>
auto run_threads(int size, threads_options options, Function&& function) {
  auto result = try_run_threads(size, options, std::forward<Function>(function));
  if constexpr (std::is_void_v<std::invoke_result_t<Function&, threads_communicator&>>) {
    result.rethrow();
  } else {
    return std::move(result).values();
  }
}

/// As above, with the default options.
template <class Function>
auto run_threads(int size, Function&& function) {
  return run_threads(size, threads_options{}, std::forward<Function>(function));
}

}  // namespace zero
