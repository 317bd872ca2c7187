// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/rank_runner.hpp"

// Runs ranks as forked processes. What a rank returned or threw comes back through a pipe, so that
// the parent, and only it, can use Catch's macros. The parent has to have one thread when it forks.
//
//   auto running = start_processes(3, make, function);   // make(rank) is called in the child
//   running.wait_for(1, "before the step");              // rank 1 called announce("before the
//   step") running.send_signal(1, SIGKILL); const auto result = running.collect();               //
//   with the interface of run_result

namespace zero::test {

/// The monotonic clock of the host: times of different processes can be compared.
using process_clock = std::chrono::steady_clock;

/// How long the parent waits for its children before it ends them.
constexpr std::chrono::seconds process_deadline{60};

/// A place in the function of a rank, and when the rank came there.
struct announcement {
  std::string point;
  process_clock::time_point when;
};

// For use inside a rank:

/// Tells the parent that this rank has come to `point`.
void announce(std::string_view point);
/// Announces `point` and stops this process, by SIGSTOP, until the parent sends SIGCONT.
void stop_here(std::string_view point);
/// Announces `point` and ends this process by SIGKILL.
[[noreturn]] void die_here(std::string_view point);

/// A rank's process ended without a result: by a signal, by an exit, or because the parent's
/// patience did.
class process_ended : public std::runtime_error {
 public:
  process_ended(const std::string& what, int signal) : std::runtime_error(what), signal_(signal) {}
  /// The signal that ended it, 0 when it exited.
  int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

/// What one rank left behind.
struct process_report {
  bool has_value = false;
  std::string value;         ///< the encoded result
  std::exception_ptr error;  ///< null when has_value; process_ended when nothing was reported
  process_clock::time_point ended;  ///< when the function returned or threw, or the process died
  std::vector<announcement> announcements;

  /// When the rank came to `point`. Throws: zero::error when it did not.
  process_clock::time_point reached(std::string_view point) const;
};

/// The exception in flight, in a form that goes through a pipe; `decode_error` makes it again, with
/// its type where it is one of the library's.
struct encoded_error {
  std::string bytes;
  std::string reason;
};
encoded_error encode_current_exception();
std::exception_ptr decode_error(std::string_view bytes);

/// The forked ranks. Not a template, so that it is compiled once.
class process_group {
 public:
  /// Returns the bytes of a `child_result`; runs in the child.
  using body = std::function<std::string(int rank)>;

  /// Forks `size` children in a process group of their own. They die with their parent.
  process_group(int size, const body& run);
  process_group(process_group&& other) noexcept;
  process_group& operator=(process_group&&) = delete;
  /// Ends what is left, by pid.
  ~process_group();

  int size() const noexcept { return static_cast<int>(children_.size()); }
  pid_t pid(int rank) const { return at(rank).pid; }
  /// The id of the process group, for a look at what is left in it.
  pid_t group() const { return at(0).pid; }

  /// Waits until this rank announces `point`. Throws: zero::error when it ends or the limit passes
  /// before.
  announcement wait_for(int rank, std::string_view point,
                        std::chrono::nanoseconds limit = process_deadline);
  /// Waits until this rank is stopped by a signal. Throws: as wait_for.
  void wait_until_stopped(int rank, std::chrono::nanoseconds limit = process_deadline);
  void send_signal(int rank, int signal);

  /// Waits for all ranks, ends those that are overdue, and returns their reports.
  std::vector<process_report> collect(std::chrono::nanoseconds limit = process_deadline);

 private:
  struct child {
    pid_t pid = -1;
    int pipe = -1;
    bool is_running = true;
    bool is_stopped = false;
    bool is_overdue = false;
    int status = 0;
    std::string received;  // not yet a whole frame
    std::string result;
    process_clock::time_point seen_ending;
    std::vector<announcement> announcements;
  };

  child& at(int rank) { return children_.at(static_cast<std::size_t>(rank)); }
  const child& at(int rank) const { return children_.at(static_cast<std::size_t>(rank)); }

  bool is_over() const;
  /// Reads what is there; false when there is nothing more for now.
  bool receive(child& from);
  static void take_frames(child& from);
  void reap(child& which);
  /// Receives what comes within the limit, at most one round of polling.
  void pump(std::chrono::milliseconds limit);
  static void end(child& which) noexcept;
  void abandon() noexcept;
  process_report report_of(int rank) const;

  std::vector<child> children_;
};

/// How results go through the pipe: strings, errors, trivially copyable values and vectors of them.
template <class R>
struct wire_form {
  static_assert(std::is_trivially_copyable_v<R>, "a rank's result has to go through a pipe");
  static std::string encode(const R& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(R));
  }
  static R decode(std::string_view bytes) {
    R value;
    if (bytes.size() != sizeof(R)) throw std::runtime_error("a result has another size");
    std::memcpy(&value, bytes.data(), sizeof(R));
    return value;
  }
};

template <class T>
struct wire_form<std::vector<T>> {
  static_assert(std::is_trivially_copyable_v<T>, "a rank's result has to go through a pipe");
  static std::string encode(const std::vector<T>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  static std::vector<T> decode(std::string_view bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
};

template <>
struct wire_form<std::string> {
  static std::string encode(const std::string& text) { return text; }
  static std::string decode(std::string_view bytes) { return std::string(bytes); }
};

template <>
struct wire_form<rank_error> {
  static std::string encode(const rank_error& error);
  static rank_error decode(std::string_view bytes);
};

template <>
struct wire_form<void> {};

/// What the ranks returned or threw, with the members of zero::run_result and the times.
template <class R>
class process_result {
 public:
  explicit process_result(std::vector<process_report> reports) : reports_(std::move(reports)) {}

  bool ok() const noexcept { return failed_rank() < 0; }

  /// The rank that failed first, -1 when none did; ranks that only learned of its failure, by an
  /// aborted_error, are not a cause.
  int failed_rank() const noexcept {
    int own = -1;
    int passed_on = -1;
    for (int rank = 0; rank < static_cast<int>(reports_.size()); ++rank) {
      if (!error(rank)) continue;
      int& slot = describe(error(rank)).kind == outcome::aborted ? passed_on : own;
      if (slot < 0 || report(rank).ended < report(slot).ended) slot = rank;
    }
    return own >= 0 ? own : passed_on;
  }

  std::exception_ptr error(int rank) const { return report(rank).error; }
  std::exception_ptr cause() const { return ok() ? nullptr : error(failed_rank()); }
  void rethrow() const {
    if (!ok()) std::rethrow_exception(cause());
  }

  std::vector<R> values() const requires(!std::is_void_v<R>) {
    rethrow();
    std::vector<R> result;
    for (const process_report& report : reports_) {
      result.push_back(wire_form<R>::decode(report.value));
    }
    return result;
  }

  /// The value of one rank, whatever became of the others. Throws: what it threw.
  R value(int rank) const requires(!std::is_void_v<R>) {
    if (error(rank)) std::rethrow_exception(error(rank));
    return wire_form<R>::decode(report(rank).value);
  }

  const process_report& report(int rank) const {
    return reports_.at(static_cast<std::size_t>(rank));
  }

 private:
  std::vector<process_report> reports_;
};

/// A process_group that knows what its ranks return.
template <class R>
class running_processes : public process_group {
 public:
  using process_group::process_group;
  process_result<R> collect(std::chrono::nanoseconds limit = process_deadline) {
    return process_result<R>(process_group::collect(limit));
  }
};

namespace detail {

/// What a child writes when it is done.
struct child_result {
  bool has_value = false;
  std::string bytes;  // of the value, or of the error
  process_clock::time_point ended;
  std::string encode() const;
};

template <class R, class Make, class Function>
std::string run_rank(int rank, Make& make, Function& function) {
  child_result result;
  const auto fail = [&] {
    result.ended = process_clock::now();
    encoded_error error = encode_current_exception();
    result.has_value = false;
    result.bytes = std::move(error.bytes);
    return error.reason;
  };
  try {
    auto communicator = make(rank);
    try {
      if constexpr (std::is_void_v<R>) {
        function(communicator);
      } else {
        result.bytes = wire_form<R>::encode(function(communicator));
      }
      result.has_value = true;
      result.ended = process_clock::now();
    } catch (...) {
      // As run_threads does: peers learn why before the destructor tells them that this rank left.
      communicator.abort(fail());
    }
  } catch (...) {
    fail();
  }
  return result.encode();
}

}  // namespace detail

/// Forks the ranks. Each child makes its communicator by `make(rank)` and calls
/// `function(communicator)`; one that throws aborts its communicator with the reason.
template <class Make, class Function>
auto start_processes(int size, Make make, Function function) {
  using communicator = std::invoke_result_t<Make&, int>;
  using result = std::invoke_result_t<Function&, communicator&>;
  return running_processes<result>(
      size, [&](int rank) { return detail::run_rank<result>(rank, make, function); });
}

template <class Make, class Function>
auto run_processes(int size, Make make, Function function,
                   std::chrono::nanoseconds limit = process_deadline) {
  auto running = start_processes(size, std::move(make), std::move(function));
  return running.collect(limit);
}

/// Stands where a test makes its communicators itself.
struct bare_rank {
  int number;
  int rank() const noexcept { return number; }
  void abort(std::string_view) noexcept {}
};

/// Forks processes that call `function(bare_rank&)`.
template <class Function>
auto start_bare_processes(int size, Function function) {
  return start_processes(
      size, [](int rank) { return bare_rank{rank}; }, std::move(function));
}

}  // namespace zero::test
