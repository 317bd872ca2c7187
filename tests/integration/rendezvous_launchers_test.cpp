// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// links: zero_rendezvous
// timeout: 120
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <zero/rendezvous/environment.hpp>
#include <zero/rendezvous/open_store.hpp>

#include "unit/rendezvous/loopback.hpp"
#include "unit/rendezvous/store_contract.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

using namespace zero;
using namespace zero::test;

// The ranks are this program again, restricted to the hidden test case "[.launched_rank]".

namespace {

using words = std::vector<std::string>;

std::string this_program() {
  std::array<char, 4096> path{};
  const auto length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return {path.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// A command that runs, with what it writes.
class running_command {
 public:
  running_command(words command, const words& variables) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    number_ = ::fork();
    if (number_ == 0) {
      ::setpgid(0, 0);
      ::dup2(ends[1], 1);
      ::dup2(ends[1], 2);
      for (const std::string& assignment : variables) {
        const auto equals = assignment.find('=');
        ::setenv(assignment.substr(0, equals).c_str(), assignment.c_str() + equals + 1, 1);
      }
      std::vector<char*> arguments;
      for (std::string& word : command) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execvp(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  running_command(const running_command&) = delete;
  running_command& operator=(const running_command&) = delete;
  ~running_command() {
    ::kill(-number_, SIGKILL);
    if (!has_ended_) ::waitpid(number_, nullptr, 0);
    ::close(output_);
  }

  /// The exit status, after at most a minute.
  int finish() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd waiting{output_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) {
        ::kill(-number_, SIGKILL);
        break;
      }
      std::array<char, 4096> buffer;
      const auto count = ::read(output_, buffer.data(), buffer.size());
      if (count <= 0) break;
      text_.append(buffer.data(), static_cast<std::size_t>(count));
    }
    int status = 0;
    ::waitpid(number_, &status, 0);
    has_ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const std::string& text() const noexcept { return text_; }

 private:
  pid_t number_ = -1;
  int output_ = -1;
  bool has_ended_ = false;
  std::string text_;
};

words variables_of(const temporary_folder& runtime, const std::string& job) {
  return {"XDG_RUNTIME_DIR=" + runtime.path(), "ZERO_TEST_JOB=" + job, "OMPI_ALLOW_RUN_AS_ROOT=1",
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
}

words mpirun(int ranks, const words& further = {}) {
  words command{"mpirun", "-n", std::to_string(ranks), "--oversubscribe"};
  command.insert(command.end(), further.begin(), further.end());
  command.insert(command.end(), {this_program(), "[.launched_rank]"});
  return command;
}

bool has_mpirun() {
  running_command version({"mpirun", "--version"}, {});
  if (version.finish() == 0) return true;
  WARN("there is no mpirun: not tested");
  return false;
}

}  // namespace

TEST_CASE("one rank of a job that a launcher started", "[.launched_rank]") {
  const launch_environment environment = from_environment();
  any_store store = open_store(environment, {.timeout = 30s});
  const std::string kind = variable("ZERO_TEST_STORE");
  if (!kind.empty()) CHECK(store.place().starts_with(kind));
  const std::string job = variable("ZERO_TEST_JOB");
  // Every rank reads what every other one wrote, and nothing of another job.
  const auto key = [](int rank) { return "job/" + std::to_string(rank); };
  store.set(key(environment.rank), job);
  for (int rank = 0; rank < environment.size; ++rank) {
    CHECK(store.get(key(rank), far()) == job);
  }
  if (variable("ZERO_TEST_KILL") == std::to_string(environment.rank)) ::raise(SIGKILL);
  store_barrier(store, "end", environment.rank, environment.size, far());
}

TEST_CASE("mpirun on one host needs nothing further") {
  if (!has_mpirun()) return;
  const temporary_folder runtime;
  for (const int ranks : {1, 4}) {
    auto variables = variables_of(runtime, "job");
    variables.push_back(ranks == 1 ? "ZERO_TEST_STORE=memory store" : "ZERO_TEST_STORE=file store");
    running_command job(mpirun(ranks), variables);
    const int status = job.finish();
    CAPTURE(ranks, job.text());
    CHECK(status == 0);
    CHECK(runtime.files() == words{});
  }
}

TEST_CASE("fault_44 two jobs of mpirun at once on one host do not meet") {
  if (!has_mpirun()) return;
  const temporary_folder runtime;
  running_command first(mpirun(2), variables_of(runtime, "first"));
  running_command second(mpirun(3), variables_of(runtime, "second"));
  const int status = first.finish();
  const int other_status = second.finish();
  CAPTURE(first.text(), second.text());
  CHECK(status == 0);
  CHECK(other_status == 0);
  CHECK(runtime.files() == words{});
}

TEST_CASE("mpirun with MASTER_ADDR and MASTER_PORT meets there") {
  if (!has_mpirun()) return;
  const temporary_folder runtime;
  const std::uint16_t port = loopback_socket().listen();
  auto variables = variables_of(runtime, "job");
  variables.push_back("ZERO_TEST_STORE=tcp store 127.0.0.1:" + std::to_string(port));
  running_command job(
      mpirun(3, {"-x", "MASTER_ADDR=127.0.0.1", "-x", "MASTER_PORT=" + std::to_string(port)}),
      variables);
  const int status = job.finish();
  CAPTURE(job.text());
  CHECK(status == 0);
  CHECK(port_is_free(port));
}

TEST_CASE("a job of mpirun that is killed leaves nothing to the next") {
  if (!has_mpirun()) return;
  const temporary_folder runtime;
  auto variables = variables_of(runtime, "killed");
  variables.push_back("ZERO_TEST_KILL=1");
  running_command killed(mpirun(2), variables);
  CHECK(killed.finish() != 0);
  running_command next(mpirun(3), variables_of(runtime, "next"));
  const int status = next.finish();
  CAPTURE(killed.text(), next.text());
  CHECK(status == 0);
  CHECK(runtime.files() == words{});
}

TEST_CASE("zero-run starts ranks that meet, and leaves nothing") {
  const std::string zero_run = variable("ZERO_BIN_DIR") + "/zero-run";
  if (::access(zero_run.c_str(), X_OK) != 0) {
    WARN("zero-run is not built: not tested");
    return;
  }
  const temporary_folder runtime;
  for (const int ranks : {1, 3}) {
    running_command job({zero_run, "-n", std::to_string(ranks), "--timeout", "50", this_program(),
                         "[.launched_rank]"},
                        variables_of(runtime, "job"));
    const int status = job.finish();
    CAPTURE(ranks, job.text());
    CHECK(status == 0);
  }
  for (const std::string victim : {"0", "2"}) {
    auto variables = variables_of(runtime, "job");
    variables.push_back("ZERO_TEST_KILL=" + victim);
    running_command job({zero_run, "-n", "3", this_program(), "[.launched_rank]"}, variables);
    const int status = job.finish();
    CAPTURE(victim, job.text());
    CHECK(status == 128 + SIGKILL);
  }
  CHECK(runtime.files() == words{});
}
