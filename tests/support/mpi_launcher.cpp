// SPDX-License-Identifier: Apache-2.0
#include "support/mpi_launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace zero::test {
namespace {

constexpr const char* rank_mark = "ZERO_TEST_LAUNCHED_RANK";

/// Open MPI as a test needs it: more ranks than cores, by whatever user, on this host alone. Other
/// MPI libraries do not look at these names.
constexpr std::array open_mpi_settings{
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_rmaps_base_oversubscribe=1",
    "OMPI_MCA_hwloc_base_binding_policy=none",
    "OMPI_MCA_btl=self,vader",
    "OMPI_MCA_pml=ob1",
    // MPI libraries keep what they allocate until the process ends.
    "ASAN_OPTIONS=detect_leaks=0",
};

std::string own_program() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw std::runtime_error("cannot read /proc/self/exe");
  return {path.data(), static_cast<std::size_t>(length)};
}

[[noreturn]] void become_mpirun(const std::vector<std::string>& words,
                                const std::vector<std::string>& settings, int output) {
  ::setpgid(0, 0);
  // A test that is ended by its timeout leaves no job behind.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  for (const char* setting : open_mpi_settings) ::putenv(const_cast<char*>(setting));
  for (const std::string& setting : settings) ::putenv(const_cast<char*>(setting.c_str()));
  ::setenv(rank_mark, "1", 1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

/// Reads until the job closes its output; returns false at the limit.
bool read_all(int from, std::chrono::steady_clock::time_point limit, std::string& output) {
  std::array<char, 4096> buffer{};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        limit - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd waiting{from, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t length = ::read(from, buffer.data(), buffer.size());
    if (length <= 0) return true;
    output.append(buffer.data(), static_cast<std::size_t>(length));
  }
}

}  // namespace

mpi_job launch_mpi(int ranks, const std::vector<std::string>& arguments, std::chrono::seconds limit,
                   const std::vector<std::string>& settings) {
  std::vector<std::string> words{"mpirun", "-n", std::to_string(ranks), own_program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("cannot fork");
  if (pid == 0) become_mpirun(words, settings, ends[1]);
  ::close(ends[1]);

  mpi_job job;
  job.is_overdue = !read_all(ends[0], std::chrono::steady_clock::now() + limit, job.output);
  ::close(ends[0]);
  // mpirun ends its ranks when it is asked to end itself.
  if (job.is_overdue) ::kill(pid, SIGTERM);
  int status = 0;
  ::waitpid(pid, &status, 0);
  job.ended = std::chrono::steady_clock::now();
  job.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return job;
}

bool is_launched_rank() {
  return std::getenv(rank_mark) != nullptr;
}

}  // namespace zero::test
