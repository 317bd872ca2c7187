// SPDX-License-Identifier: Apache-2.0
#include "launch.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace zero_run {
namespace {

using std::chrono::steady_clock;

[[noreturn]] void throw_last_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// The program is not there, or is none.
class start_failure : public std::system_error {
 public:
  using std::system_error::system_error;
};

class descriptor {
 public:
  explicit descriptor(int number) : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&&) = delete;
  ~descriptor() { close(); }

  int number() const noexcept { return number_; }
  void close() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_;
};

/// The signals that this process waits for instead of being interrupted by them.
sigset_t awaited_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
  return set;
}

/// A socket that listens at a port of the loopback device. Rank 0 inherits it: were it to listen
/// only when it runs, another process could take the port until then.
descriptor open_meeting_port(std::uint16_t& port) {
  descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (socket.number() < 0 || ::bind(socket.number(), generic, sizeof address) != 0 ||
      ::listen(socket.number(), SOMAXCONN) != 0 ||
      ::getsockname(socket.number(), generic, &length) != 0) {
    throw_last_error("cannot open a port for the ranks to meet at");
  }
  port = ntohs(address.sin_port);
  return socket;
}

/// Whether the variable would tell a rank something about another launch.
bool is_replaced(std::string_view assignment) {
  const auto name = assignment.substr(0, assignment.find('='));
  constexpr std::array<std::string_view, 7> names{
      "RANK",        "WORLD_SIZE",  "LOCAL_RANK",   "LOCAL_WORLD_SIZE",
      "MASTER_ADDR", "MASTER_PORT", "ZERO_STORE_FD"};
  constexpr std::array<std::string_view, 6> prefixes{"ZERO_RANK",   "ZERO_WORLD_SIZE",
                                                     "ZERO_LOCAL_", "ZERO_STORE_PORT",
                                                     "ZERO_JOB_ID", "TORCHELASTIC_"};
  return std::find(names.begin(), names.end(), name) != names.end() ||
         std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> environment_of(int rank, int ranks, std::uint16_t port, int store) {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    if (!is_replaced(*at)) variables.emplace_back(*at);
  }
  const std::string rank_text = std::to_string(rank);
  const std::string size_text = std::to_string(ranks);
  variables.push_back("RANK=" + rank_text);
  variables.push_back("LOCAL_RANK=" + rank_text);
  variables.push_back("WORLD_SIZE=" + size_text);
  variables.push_back("LOCAL_WORLD_SIZE=" + size_text);
  variables.push_back("MASTER_ADDR=127.0.0.1");
  variables.push_back("MASTER_PORT=" + std::to_string(port));
  if (rank == 0) variables.push_back("ZERO_STORE_FD=" + std::to_string(store));
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct rank_process {
  pid_t number = -1;
  bool has_ended = false;
};

/// Started but not yet reaped processes, each the leader of a group of its own.
class rank_group {
 public:
  explicit rank_group(const launch_options& options)
      : options_(options), command_(options.command) {
    // Whoever started this process may ignore it, and then the ranks' statuses would be lost.
    ::signal(SIGCHLD, SIG_DFL);
    const sigset_t set = awaited_signals();
    ::sigprocmask(SIG_BLOCK, &set, &signals_before_);
  }
  rank_group(const rank_group&) = delete;
  rank_group& operator=(const rank_group&) = delete;
  ~rank_group() {
    signal_all(SIGKILL);
    for (const rank_process& rank : ranks_) {
      if (!rank.has_ended) ::waitpid(rank.number, nullptr, 0);
    }
    ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  }

  void start() {
    std::uint16_t port = 0;
    const descriptor store = open_meeting_port(port);
    for (int rank = 0; rank < options_.ranks; ++rank) start_rank(rank, port, store.number());
    // This copy of the socket is closed here: when rank 0 ends, the port has to close.
  }

  int run() {
    if (options_.timeout) deadline_ = steady_clock::now() + *options_.timeout;
    while (!all_have_ended()) {
      await_signal();
      reap();
      if (deadline_ && steady_clock::now() >= *deadline_) pass_deadline();
    }
    return status_;
  }

 private:
  void start_rank(int rank, std::uint16_t port, int store) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw_last_error("cannot open a pipe");
    descriptor reading(ends[0]);
    descriptor writing(ends[1]);
    auto variables = environment_of(rank, options_.ranks, port, store);
    const auto environment = pointers_to(variables);
    const auto arguments = pointers_to(command_);
    const pid_t launcher = ::getpid();
    const pid_t number = ::fork();
    if (number < 0) throw_last_error("cannot start a process");
    if (number == 0) {
      // Only calls that are safe between fork and exec.
      ::setpgid(0, 0);
      // The rank ends with the launcher, also when that is killed; it may have been by now.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != launcher) ::_exit(not_started_status);
      ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
      if (rank == 0) ::fcntl(store, F_SETFD, 0);
      ::execvpe(arguments[0], arguments.data(), environment.data());
      const int reason = errno;
      (void)!::write(writing.number(), &reason, sizeof reason);
      ::_exit(not_started_status);
    }
    ::setpgid(number, number);  // in both processes, so that it holds whichever comes first
    ranks_.push_back({number});
    writing.close();
    int reason = 0;
    if (::read(reading.number(), &reason, sizeof reason) == sizeof reason) {
      throw start_failure(reason, std::generic_category(), "cannot start " + command_[0]);
    }
  }

  bool all_have_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const rank_process& rank) { return rank.has_ended; });
  }

  void await_signal() {
    const sigset_t set = awaited_signals();
    int signal = 0;
    if (deadline_) {
      using std::chrono::nanoseconds;
      const auto left =
          std::max(std::chrono::duration_cast<nanoseconds>(*deadline_ - steady_clock::now()),
                   nanoseconds(0));
      constexpr std::int64_t second = 1'000'000'000;
      const timespec time{static_cast<time_t>(left.count() / second),
                          static_cast<long>(left.count() % second)};
      signal = ::sigtimedwait(&set, nullptr, &time);
    } else {
      signal = ::sigwaitinfo(&set, nullptr);
    }
    if (signal > 0 && signal != SIGCHLD) {
      // A rank may write a checkpoint on SIGINT and take its time; asked twice, it has had it.
      signal_all(was_signalled_ ? SIGKILL : signal);
      was_signalled_ = true;
    }
  }

  void reap() {
    collect_ended();
    if (!first_failure_ || is_ending_) return;
    if (!first_failure_->by_signal) {
      // A rank that is killed closes its connections before it counts as ended, so peers that fail
      // for want of it may be seen to end first. It is the cause, and a moment shows it.
      ::usleep(100'000);
      collect_ended();
    }
    report(*first_failure_);
    end_all();
  }

  void collect_ended() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      rank_process& process = ranks_[rank];
      siginfo_t info{};
      if (process.has_ended ||
          ::waitid(P_PID, static_cast<id_t>(process.number), &info, WEXITED | WNOHANG | WNOWAIT) !=
              0 ||
          info.si_pid == 0) {
        continue;
      }
      // While it is not reaped, its number is its own: what it started and left goes with it.
      ::kill(-process.number, SIGKILL);
      ::waitpid(process.number, nullptr, 0);
      process.has_ended = true;
      note_end({rank, info.si_code != CLD_EXITED, info.si_status});
    }
  }

  /// How a rank ended that should not have.
  struct failed_rank {
    std::size_t rank;
    bool by_signal;
    int code;
  };

  void note_end(const failed_rank& end) {
    if (is_ending_ || (!end.by_signal && end.code == 0)) return;
    if (!first_failure_ || (end.by_signal && !first_failure_->by_signal)) first_failure_ = end;
  }

  void report(const failed_rank& end) {
    status_ = end.by_signal ? 128 + end.code : end.code;
    std::cerr << "zero-run: rank " << end.rank
              << (end.by_signal ? " was ended by signal " : " ended with status ") << end.code
              << (all_have_ended() ? "\n" : ", ending the others\n");
  }

  void pass_deadline() {
    if (is_ending_) {
      signal_all(SIGKILL);
      deadline_.reset();
      return;
    }
    status_ = timeout_status;
    std::cerr << "zero-run: the ranks run for longer than " << options_.timeout->count()
              << " s, ending them\n";
    end_all();
  }

  /// SIGTERM now; SIGKILL when the grace is over.
  void end_all() {
    signal_all(SIGTERM);
    is_ending_ = true;
    deadline_ = steady_clock::now() + options_.grace;
  }

  void signal_all(int signal) const {
    for (const rank_process& rank : ranks_) {
      if (!rank.has_ended) ::kill(-rank.number, signal);
    }
  }

  const launch_options& options_;
  std::vector<std::string> command_;
  sigset_t signals_before_{};
  std::vector<rank_process> ranks_;
  std::optional<steady_clock::time_point> deadline_;
  std::optional<failed_rank> first_failure_;
  bool is_ending_ = false;
  bool was_signalled_ = false;
  int status_ = 0;
};

}  // namespace

int launch(const launch_options& options) {
  rank_group group(options);
  try {
    group.start();
  } catch (const start_failure& failure) {
    std::cerr << "zero-run: " << failure.what() << '\n';
    return not_started_status;
  }
  return group.run();
}

}  // namespace zero_run
