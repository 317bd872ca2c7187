// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "team.hpp"
#include "worker.hpp"

namespace collectives_bench {
namespace {

/// The two ends of a channel: the program's and the rank's.
std::pair<descriptor, descriptor> make_channel() {
  std::array<int, 2> ends{};
  checked(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
  return {descriptor(ends[0]), descriptor(ends[1])};
}

/// A rank that held its peers' channels would keep them from noticing that the program ended.
void close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = STDERR_FILENO + 1;
  for (const int number : kept) {
    const auto next = static_cast<unsigned>(number);
    if (next > first) ::close_range(first, next - 1, 0);
    first = next + 1;
  }
  ::close_range(first, ~0U, 0);
}

/// A child that runs `body` and ends with what it returns, or when the program ends.
pid_t fork_child(const std::vector<int>& kept, const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = checked(::fork(), "fork");
  if (child != 0) return child;
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  int code = 1;
  try {
    close_all_but(kept);
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_collectives: %s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

team start_threads(int size, std::uint64_t bytes) {
  shared_barrier barrier(size);
  std::vector<descriptor> program_ends;
  std::vector<descriptor> rank_ends;
  std::vector<int> numbers;
  for (int rank = 0; rank < size; ++rank) {
    auto [program_end, rank_end] = make_channel();
    numbers.push_back(rank_end.number());
    program_ends.push_back(std::move(program_end));
    rank_ends.push_back(std::move(rank_end));
  }
  const pid_t child =
      fork_child(numbers, [&] { return run_thread_ranks(numbers, barrier, bytes); });
  return {team_kind::threads, std::move(program_ends), {child}};
}

team start_processes(int size, std::uint64_t bytes, const std::string& folder) {
  shared_barrier barrier(size);
  std::vector<descriptor> program_ends;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    auto [program_end, rank_end] = make_channel();
    const int number = rank_end.number();
    children.push_back(fork_child({number}, [&] {
      return run_process_rank(number, {rank, size}, barrier, folder, bytes);
    }));
    program_ends.push_back(std::move(program_end));
  }
  return {team_kind::processes, std::move(program_ends), std::move(children)};
}

#ifdef BENCH_MPIRUN

descriptor listen_at(const std::string& name) {
  descriptor listening(checked(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path)) {
    throw std::runtime_error("the name of the socket is too long: " + name);
  }
  name.copy(address.sun_path, sizeof(address.sun_path) - 1);
  checked(::bind(listening.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
          "bind " + name);
  checked(::listen(listening.number(), SOMAXCONN), "listen at " + name);
  return listening;
}

/// This program as `size` ranks of an MPI job on this host, whoever the user is and however few
/// the cores are. MPI libraries other than Open MPI do not look at these names.
int become_mpirun(int size, std::uint64_t bytes, const std::string& socket_name) {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe"}) {
    ::setenv(name, "1", 1);
  }
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  // It would read the terminal on behalf of its rank 0.
  checked(
      ::dup2(checked(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open /dev/null"), STDIN_FILENO),
      "replace the standard input");
  std::array<char, 4096> program{};
  checked(static_cast<int>(::readlink("/proc/self/exe", program.data(), program.size() - 1)),
          "read /proc/self/exe");
  std::vector<std::string> words{
      BENCH_MPIRUN, "-n",      std::to_string(size), program.data(), "--mpi-rank-of",
      socket_name,  "--bytes", std::to_string(bytes)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  checked(::execv(arguments[0], arguments.data()), "start " BENCH_MPIRUN);
  return 127;
}

team start_mpi(int size, std::uint64_t bytes, const std::string& folder) {
  const std::string name = folder + "/socket";
  const descriptor listening = listen_at(name);
  const pid_t mpirun = fork_child({}, [&] { return become_mpirun(size, bytes, name); });
  std::vector<descriptor> channels(static_cast<std::size_t>(size));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  try {
    for (int come = 0; come < size; ++come) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd waiting{listening.number(), POLLIN, 0};
      if (checked(::poll(&waiting, 1, std::max(0, static_cast<int>(left.count()))), "poll") == 0) {
        throw std::runtime_error(std::to_string(size - come) + " of " + std::to_string(size) +
                                 " ranks of " BENCH_MPIRUN " did not come within 2 minutes");
      }
      descriptor channel(
          checked(::accept4(listening.number(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
      mpi_greeting greeting;
      if (!receive_object(channel.number(), greeting, std::chrono::seconds(60))) {
        throw std::runtime_error("a rank of MPI ended before it said which one it was");
      }
      channels.at(static_cast<std::size_t>(greeting.rank)) = std::move(channel);
    }
  } catch (...) {
    const team abandoned(team_kind::mpi, {}, {mpirun});  // ends mpirun, which ends its ranks
    throw;
  }
  ::unlink(name.c_str());
  return {team_kind::mpi, std::move(channels), {mpirun}};
}

#else

team start_mpi(int, std::uint64_t, const std::string&) {
  throw std::logic_error("this program was built without MPI");
}

#endif

}  // namespace

team start_team(team_kind kind, int size, std::uint64_t bytes, const std::string& folder) {
  if (kind == team_kind::threads) return start_threads(size, bytes);
  if (kind == team_kind::processes) return start_processes(size, bytes, folder);
  return start_mpi(size, bytes, folder);
}

}  // namespace collectives_bench
