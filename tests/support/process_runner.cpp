// SPDX-License-Identifier: Apache-2.0
#include "support/process_runner.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <system_error>
#include <thread>

#include <zero/error.hpp>

namespace zero::test {

namespace {

using std::chrono::milliseconds;

[[noreturn]] void throw_errno(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

// Words and strings one after the other; both sides are this very program.

class packer {
 public:
  template <class T>
  packer& add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  packer& add_text(std::string_view text) {
    add(std::uint64_t{text.size()});
    bytes_.append(text);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class unpacker {
 public:
  explicit unpacker(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, next(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string get_text() { return std::string(next(get<std::uint64_t>())); }
  std::string rest() { return std::string(bytes_); }

 private:
  std::string_view next(std::size_t count) {
    if (bytes_.size() < count) throw error("a child's message is cut short");
    const std::string_view part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return part;
  }
  std::string_view bytes_;
};

void pack(packer& to, const communicator_failure& where) {
  to.add_text(where.backend).add(where.rank).add(where.peer).add_text(where.operation);
  to.add(where.sequence).add(where.elapsed_seconds);
}

communicator_failure unpack_failure(unpacker& from) {
  communicator_failure where;
  where.backend = from.get_text();
  where.rank = from.get<int>();
  where.peer = from.get<int>();
  where.operation = from.get_text();
  where.sequence = from.get<std::uint64_t>();
  where.elapsed_seconds = from.get<double>();
  return where;
}

process_clock::time_point unpack_time(unpacker& from) {
  return process_clock::time_point(process_clock::duration(from.get<process_clock::rep>()));
}

enum class frame : std::uint32_t { announcement, result };
constexpr std::size_t frame_header = sizeof(frame) + sizeof(std::uint64_t);

/// The child's end of its pipe. A process is one rank, so this belongs to the process.
int pipe_to_parent = -1;

void send_frame(frame kind, std::string_view bytes) {
  const std::string message = packer().add(kind).add_text(bytes).take();
  for (std::size_t sent = 0; sent < message.size();) {
    const ssize_t n = ::write(pipe_to_parent, message.data() + sent, message.size() - sent);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      ::_exit(125);  // the parent is gone
    }
  }
}

void prepare_child(pid_t parent, pid_t group) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(124);  // it died before the line above
  ::setpgid(0, group);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // Catch's handlers would report the child's crash as if it were the parent's.
  for (const int number : {SIGINT, SIGTERM, SIGABRT, SIGFPE, SIGILL, SIGSEGV}) {
    std::signal(number, SIG_DFL);
  }
}

/// Leaves without the parent's atexit functions and destructors. noexcept: nothing may unwind into
/// the parent's stack frames.
[[noreturn]] void report_and_exit(int rank, const process_group::body& run) noexcept {
  send_frame(frame::result, run(rank));
  ::_exit(0);
}

std::string name_of_signal(int number) {
  return "signal " + std::to_string(number) + " (" + ::strsignal(number) + ")";
}

}  // namespace

void announce(std::string_view point) {
  const auto now = process_clock::now().time_since_epoch().count();
  send_frame(frame::announcement, packer().add(now).add_text(point).take());
}

void stop_here(std::string_view point) {
  announce(point);
  ::kill(::getpid(), SIGSTOP);
}

void die_here(std::string_view point) {
  announce(point);
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

process_clock::time_point process_report::reached(std::string_view point) const {
  for (const announcement& here : announcements) {
    if (here.point == point) return here.when;
  }
  throw zero::error("the rank did not come to \"" + std::string(point) + "\"");
}

// Which types come back as themselves, besides those that `outcome` tells apart.
enum class error_type : std::uint32_t { as_outcome, domain };

encoded_error encode_current_exception() {
  const std::exception_ptr caught = std::current_exception();
  const rank_error described = describe(caught);
  error_type type = error_type::as_outcome;
  std::string reason = described.text;
  try {
    std::rethrow_exception(caught);
  } catch (const communicator_error& e) {
    reason = e.reason();
  } catch (const std::domain_error&) {
    type = error_type::domain;
  } catch (...) {
  }
  packer to;
  to.add(type).add(described.kind).add_text(reason);
  pack(to, described.where);
  return {to.take(), described.text};
}

std::exception_ptr decode_error(std::string_view bytes) {
  unpacker from(bytes);
  const auto type = from.get<error_type>();
  const auto kind = from.get<outcome>();
  const std::string reason = from.get_text();
  const communicator_failure where = unpack_failure(from);
  if (type == error_type::domain) return std::make_exception_ptr(std::domain_error(reason));
  switch (kind) {
    case outcome::timeout:
      return std::make_exception_ptr(timeout_error(reason, where));
    case outcome::mismatch:
      return std::make_exception_ptr(mismatch_error(reason, where));
    case outcome::aborted:
      return std::make_exception_ptr(aborted_error(reason, where));
    case outcome::communicator:
      return std::make_exception_ptr(communicator_error(reason, where));
    case outcome::error:
      return std::make_exception_ptr(zero::error(reason));
    case outcome::usage:
      return std::make_exception_ptr(usage_error(reason));
    default:
      return std::make_exception_ptr(std::runtime_error(reason));
  }
}

std::string wire_form<rank_error>::encode(const rank_error& error) {
  packer to;
  to.add(error.kind).add_text(error.text);
  pack(to, error.where);
  return to.take();
}

rank_error wire_form<rank_error>::decode(std::string_view bytes) {
  unpacker from(bytes);
  rank_error error;
  error.kind = from.get<outcome>();
  error.text = from.get_text();
  error.where = unpack_failure(from);
  return error;
}

std::string detail::child_result::encode() const {
  return packer().add(has_value).add(ended.time_since_epoch().count()).add_text(bytes).take();
}

process_group::process_group(int size, const body& run) {
  children_.reserve(static_cast<std::size_t>(size));
  std::fflush(nullptr);  // or children inherit what is not yet written
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe2");
    // Reading must not wait for whoever may have inherited a child's end.
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const pid_t pid = ::fork();
    if (pid < 0) {
      const int cause = errno;
      ::close(ends[0]);
      ::close(ends[1]);
      abandon();
      errno = cause;
      throw_errno("fork");
    }
    const pid_t group = rank == 0 ? 0 : at(0).pid;
    if (pid == 0) {
      prepare_child(parent, group);
      ::close(ends[0]);
      for (const child& earlier : children_) ::close(earlier.pipe);
      pipe_to_parent = ends[1];
      report_and_exit(rank, run);
    }
    ::setpgid(pid, group == 0 ? pid : group);  // by both, so that nobody has to wait for the other
    ::close(ends[1]);
    child& started = children_.emplace_back();
    started.pid = pid;
    started.pipe = ends[0];
  }
}

process_group::process_group(process_group&& other) noexcept
    : children_(std::exchange(other.children_, {})) {}

process_group::~process_group() {
  abandon();
}

void process_group::abandon() noexcept {
  for (child& left : children_) {
    end(left);
    if (left.pipe >= 0) ::close(std::exchange(left.pipe, -1));
  }
}

void process_group::end(child& which) noexcept {
  if (!which.is_running) return;
  ::kill(which.pid, SIGKILL);
  while (::waitpid(which.pid, &which.status, 0) < 0 && errno == EINTR) {
  }
  which.is_running = false;
  which.seen_ending = process_clock::now();
}

bool process_group::is_over() const {
  return std::none_of(children_.begin(), children_.end(),
                      [](const child& c) { return c.is_running; });
}

bool process_group::receive(child& from) {
  if (from.pipe < 0) return false;
  char piece[16384];
  const ssize_t n = ::read(from.pipe, piece, sizeof(piece));
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno == EAGAIN) return false;
  if (n <= 0) {
    ::close(std::exchange(from.pipe, -1));
    return false;
  }
  from.received.append(piece, static_cast<std::size_t>(n));
  take_frames(from);
  return true;
}

void process_group::take_frames(child& from) {
  while (from.received.size() >= frame_header) {
    unpacker header(from.received);
    const auto kind = header.get<frame>();
    const auto length = header.get<std::uint64_t>();
    if (from.received.size() - frame_header < length) return;
    const std::string bytes = from.received.substr(frame_header, length);
    from.received.erase(0, frame_header + length);
    if (kind == frame::result) {
      from.result = bytes;
    } else {
      unpacker content(bytes);
      const auto when = unpack_time(content);
      from.announcements.push_back({content.get_text(), when});
    }
  }
}

void process_group::reap(child& which) {
  int status = 0;
  while (which.is_running) {
    const pid_t changed = ::waitpid(which.pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (changed == 0) return;
    if (changed < 0) {
      if (errno == EINTR) continue;
      throw_errno("waitpid");
    }
    if (WIFSTOPPED(status)) {
      which.is_stopped = true;
    } else if (WIFCONTINUED(status)) {
      which.is_stopped = false;
    } else {
      which.is_running = false;
      which.status = status;
      which.seen_ending = process_clock::now();
    }
  }
}

void process_group::pump(milliseconds limit) {
  std::vector<pollfd> waited;
  std::vector<child*> owners;
  for (child& c : children_) {
    reap(c);
    if (c.pipe < 0) continue;
    waited.push_back({c.pipe, POLLIN, 0});
    owners.push_back(&c);
  }
  if (waited.empty()) {
    // Their pipes are closed, their ends are near: there is nothing to poll but the processes.
    std::this_thread::sleep_for(milliseconds(1));
    return;
  }
  const int ready = ::poll(waited.data(), waited.size(), static_cast<int>(limit.count()));
  if (ready < 0 && errno != EINTR) throw_errno("poll");
  for (std::size_t i = 0; ready > 0 && i < waited.size(); ++i) {
    if (waited[i].revents != 0) receive(*owners[i]);
  }
}

announcement process_group::wait_for(int rank, std::string_view point,
                                     std::chrono::nanoseconds limit) {
  const auto deadline = process_clock::now() + limit;
  child& waited = at(rank);
  for (;;) {
    for (const announcement& here : waited.announcements) {
      if (here.point == point) return here;
    }
    const bool is_over = !waited.is_running && waited.pipe < 0;
    if (is_over || process_clock::now() > deadline) {
      throw error("rank " + std::to_string(rank) + " did not come to \"" + std::string(point) +
                  "\": " + (is_over ? "it ended" : "the limit passed"));
    }
    pump(milliseconds(20));
  }
}

void process_group::wait_until_stopped(int rank, std::chrono::nanoseconds limit) {
  const auto deadline = process_clock::now() + limit;
  child& waited = at(rank);
  while (!waited.is_stopped) {
    if (!waited.is_running || process_clock::now() > deadline) {
      throw error("rank " + std::to_string(rank) +
                  " did not stop: " + (waited.is_running ? "the limit passed" : "it ended"));
    }
    pump(milliseconds(2));
  }
}

void process_group::send_signal(int rank, int signal) {
  // A child that has ended stays a zombie until it is reaped here, so its pid is still its own.
  if (at(rank).is_running && ::kill(at(rank).pid, signal) != 0) throw_errno("kill");
}

process_report process_group::report_of(int rank) const {
  const child& c = at(rank);
  const std::string name = "rank " + std::to_string(rank);
  process_report report;
  report.announcements = c.announcements;
  report.ended = c.seen_ending;
  const int signal = WIFSIGNALED(c.status) ? WTERMSIG(c.status) : 0;
  const int exit_status = WIFEXITED(c.status) ? WEXITSTATUS(c.status) : 0;
  std::optional<std::string> fault;
  if (c.is_overdue) {
    fault = name + " had not ended when the limit of its run passed";
  } else if (signal != 0) {
    fault = name + " was ended by " + name_of_signal(signal);
  } else if (exit_status != 0) {
    // A sanitizer's report, also after a result, shows here alone.
    fault = name + " exited with status " + std::to_string(exit_status);
  } else if (c.result.empty()) {
    fault = name + " exited without a result";
  }
  if (fault) {
    report.error = std::make_exception_ptr(process_ended(*fault, signal));
    return report;
  }
  unpacker from(c.result);
  report.has_value = from.get<bool>();
  report.ended = unpack_time(from);
  std::string bytes = from.get_text();
  if (report.has_value) {
    report.value = std::move(bytes);
  } else {
    report.error = decode_error(bytes);
  }
  return report;
}

std::vector<process_report> process_group::collect(std::chrono::nanoseconds limit) {
  const auto deadline = process_clock::now() + limit;
  while (!is_over() && process_clock::now() < deadline) pump(milliseconds(20));
  std::vector<process_report> reports;
  for (int rank = 0; rank < size(); ++rank) {
    child& c = at(rank);
    if (c.is_running) {
      c.is_overdue = true;
      end(c);
    }
    // What it wrote before it ended is still in the pipe.
    while (receive(c)) {
    }
    reports.push_back(report_of(rank));
  }
  return reports;
}

}  // namespace zero::test
