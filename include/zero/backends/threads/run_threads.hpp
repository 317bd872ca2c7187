// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <zero/backends/threads/communicator.hpp>
#include <zero/error.hpp>

namespace zero {

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
