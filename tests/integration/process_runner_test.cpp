// SPDX-License-Identifier: Apache-2.0
// labels: fault
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <zero/error.hpp>

#include "support/leftovers.hpp"
#include "support/process_runner.hpp"

// The tools of the tests with processes are tested like everything else: a runner that loses a
// failure would let every fault test pass.

using namespace zero::test;
using namespace std::chrono_literals;

namespace {

const zero::communicator_failure somewhere{"gloo", 1, 2, "all_gather", 7, 0.25};

template <class Function>
auto run_bare(int size, Function function) {
  auto running = start_bare_processes(size, std::move(function));
  return running.collect();
}

}  // namespace

TEST_CASE("ranks run in processes of their own and their values come back in order") {
  const leftovers before;
  auto running = start_bare_processes(5, [](bare_rank& rank) {
    return std::vector<long>{rank.number, ::getpid(), ::getppid(), ::getpgrp()};
  });
  const auto result = running.collect();
  REQUIRE(result.ok());
  for (int rank = 0; rank < 5; ++rank) {
    const auto value = result.values().at(static_cast<std::size_t>(rank));
    CHECK(value == std::vector<long>{rank, running.pid(rank), ::getpid(), running.group()});
  }
  CHECK(before.found(running.group()) == "");
}

TEST_CASE("results of every form come back, also those larger than a pipe") {
  const std::string text(300000, 'z');
  CHECK(run_bare(2, [&](bare_rank&) { return text; }).values().at(1) == text);
  CHECK(run_bare(1, [&](bare_rank&) { return std::string(); }).values().at(0).empty());
  CHECK(run_bare(1, [](bare_rank&) { return 0.125; }).values().at(0) == 0.125);
  const auto error =
      run_bare(
          1,
          [](bare_rank&) { return error_of([] { throw zero::timeout_error("late", somewhere); }); })
          .values()
          .at(0);
  CHECK(error.kind == outcome::timeout);
  CHECK(error.says("late"));
  CHECK(error.where.operation == "all_gather");
}

TEST_CASE("what a rank throws comes back with its type, text and place") {
  const auto result = run_bare(7, [](bare_rank& rank) {
    switch (rank.number) {
      case 0:
        throw zero::timeout_error("too late", somewhere);
      case 1:
        throw zero::mismatch_error("other count", somewhere);
      case 2:
        throw zero::aborted_error("stop", somewhere);
      case 3:
        throw zero::error("no route");
      case 4:
        throw zero::usage_error("no such rank");
      case 5:
        throw std::domain_error("on fire");
      default:
        throw 3;
    }
  });
  const outcome kinds[] = {outcome::timeout, outcome::mismatch, outcome::aborted, outcome::error,
                           outcome::usage,   outcome::other,    outcome::other};
  for (int rank = 0; rank < 7; ++rank) {
    const rank_error error = describe(result.error(rank));
    INFO(rank << ": " << error.text);
    CHECK(error.kind == kinds[rank]);
    if (rank > 2) continue;
    CHECK(error.where.backend == "gloo");
    CHECK(error.where.rank == 1);
    CHECK(error.where.peer == 2);
    CHECK(error.where.sequence == 7);
    CHECK(error.where.elapsed_seconds == 0.25);
  }
  CHECK(describe(result.error(0)).text == zero::timeout_error("too late", somewhere).what());
  CHECK_THROWS_AS(std::rethrow_exception(result.error(5)), std::domain_error);
  CHECK_FALSE(result.ok());
}

TEST_CASE("the first failure that is no rank's echo of another one is the cause") {
  const auto result = run_bare(3, [](bare_rank& rank) {
    if (rank.number == 0) throw zero::aborted_error("rank 2 failed", somewhere);
    std::this_thread::sleep_for(rank.number == 1 ? 200ms : 50ms);
    throw std::domain_error("rank " + std::to_string(rank.number));
  });
  CHECK(result.failed_rank() == 2);
  CHECK_THROWS_AS(result.rethrow(), std::domain_error);
}

TEST_CASE("a rank's communicator is made in its process and aborted with what the rank throws") {
  struct recording {
    int number;
    int made_by;
    void abort(std::string_view reason) noexcept { announce("aborted: " + std::string(reason)); }
  };
  const auto result = run_processes(
      2,
      [](int rank) {
        return recording{rank, ::getpid()};
      },
      [](recording& communicator) {
        if (communicator.made_by != ::getpid()) throw std::runtime_error("made elsewhere");
        if (communicator.number == 1) throw std::domain_error("on fire");
      });
  CHECK_FALSE(result.error(0));
  CHECK(result.failed_rank() == 1);
  REQUIRE(result.report(1).announcements.size() == 1);
  CHECK(result.report(1).announcements[0].point == "aborted: on fire");

  const auto unmade = run_processes(
      2, [](int) -> recording { throw zero::error("no store"); }, [](recording&) {});
  CHECK(describe(unmade.error(0)).says("no store"));
}

TEST_CASE("a process that dies or exits without a result is an error with the cause") {
  const auto result = run_bare(4, [](bare_rank& rank) {
    if (rank.number == 0) die_here("the end");
    if (rank.number == 1) ::_exit(3);
    if (rank.number == 2) std::abort();
  });
  CHECK(describe(result.error(0)).says("rank 0 was ended by signal 9"));
  CHECK(result.report(0).reached("the end") <= result.report(0).ended);
  CHECK(describe(result.error(1)).says("rank 1 exited with status 3"));
  CHECK(describe(result.error(2)).says("signal 6"));
  CHECK_FALSE(result.error(3));
}

TEST_CASE("an announced rank is killed, stopped and continued from outside") {
  auto running = start_bare_processes(3, [](bare_rank& rank) {
    if (rank.number == 0) stop_here("stop");
    if (rank.number == 1) {
      announce("asleep");
      std::this_thread::sleep_for(60s);
    }
    return std::string("went on");
  });
  running.wait_for(1, "asleep");
  running.send_signal(1, SIGKILL);
  running.wait_until_stopped(0);
  CHECK_THROWS_AS(running.wait_for(2, "nowhere"), zero::error);  // it ends without coming there
  running.send_signal(0, SIGCONT);
  const auto result = running.collect();
  CHECK(result.value(0) == "went on");
  CHECK(describe(result.error(1)).says("signal 9"));
  CHECK(result.value(2) == "went on");
}

TEST_CASE("a rank that hangs is ended when the limit passes and nothing of it stays") {
  const leftovers before;
  auto running = start_bare_processes(2, [](bare_rank& rank) {
    if (rank.number == 1) std::this_thread::sleep_for(600s);
  });
  const auto result = running.collect(300ms);
  CHECK_FALSE(result.error(0));
  CHECK(describe(result.error(1)).says("rank 1 had not ended"));
  CHECK(before.found(running.group()) == "");
}

TEST_CASE("children die with their parent") {
  pid_t grandchild = 0;
  {
    auto running = start_bare_processes(1, [](bare_rank&) {
      auto inner = start_bare_processes(1, [](bare_rank&) { std::this_thread::sleep_for(600s); });
      announce(std::to_string(inner.pid(0)));
      std::this_thread::sleep_for(600s);
    });
    while (grandchild == 0) {
      // The point is a number that only the child knows: look at what it announced.
      const auto result = running.collect(200ms);
      for (const announcement& here : result.report(0).announcements) {
        grandchild = std::stoi(here.point);
      }
      REQUIRE(grandchild != 0);
    }
  }
  const auto deadline = process_clock::now() + 10s;
  bool is_gone = false;
  while (!is_gone && process_clock::now() < deadline) {
    std::ifstream status("/proc/" + std::to_string(grandchild) + "/stat");
    std::string text;
    std::getline(status, text);
    is_gone = text.empty() || text.find(") Z") != std::string::npos;
    std::this_thread::sleep_for(10ms);
  }
  CHECK(is_gone);
}

TEST_CASE("leftovers sees files, descriptors, ports and threads that stay") {
  const leftovers before;
  CHECK(before.found() == "");
  const std::string path = "/dev/shm/zero-leftovers-test-" + std::to_string(::getpid());
  { std::ofstream(path) << "x"; }
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(::listen(listening, 1) == 0);
  socklen_t length = sizeof(address);
  ::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &length);
  CHECK(own_listening_ports().count(ntohs(address.sin_port)) == 1);
  const std::string text = before.found(0, 0ms);
  CHECK(text.find("file " + path) != std::string::npos);
  CHECK(text.find("-> socket:[") != std::string::npos);
  ::unlink(path.c_str());
  ::close(listening);
  CHECK(own_listening_ports().count(ntohs(address.sin_port)) == 0);
  CHECK(before.found() == "");
}
