// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <zero/backends/threads.hpp>

#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;

namespace {

double sum_over_ranks(threads_communicator& comm, double value) {
  comm.all_reduce(range<double, full>(&value, 1));
  return value;
}

}  // namespace

TEST_CASE("run_threads returns the ranks' results in rank order") {
  for (int size = 1; size <= 8; ++size) {
    const std::vector<int> ranks = run_threads(size, [&](threads_communicator& comm) {
      return comm.size() == size ? comm.rank() : -1;
    });
    for (int rank = 0; rank < size; ++rank) CHECK(ranks[static_cast<std::size_t>(rank)] == rank);
  }
}

TEST_CASE("run_threads takes results of bool, of types that only move, and none") {
  CHECK(run_threads(3, [](threads_communicator& comm) { return comm.rank() == 1; }) ==
        std::vector<bool>{false, true, false});
  const auto pointers = run_threads(
      2, [](threads_communicator& comm) { return std::make_unique<int>(comm.rank()); });
  CHECK(*pointers[1] == 1);
  std::atomic<int> calls{0};
  run_threads(4, [&](threads_communicator&) { ++calls; });
  CHECK(calls == 4);
}

TEST_CASE("a world of no ranks, or without time, is refused with its values") {
  CHECK_THROWS_WITH(run_threads(0, [](threads_communicator&) {}), Catch::Contains("size 0"));
  CHECK_THROWS_AS(threads_world(-3), usage_error);
  CHECK_THROWS_WITH(threads_world(2, {.timeout = std::chrono::nanoseconds(-5)}),
                    Catch::Contains("-5 ns"));
}

TEST_CASE("a timeout that cannot be added to a clock is as good as none") {
  const threads_options forever{.timeout = std::chrono::nanoseconds::max()};
  CHECK(run_threads(2, forever, [](threads_communicator& comm) {
          return sum_over_ranks(comm, 1);
        }) == std::vector<double>{2, 2});
}

TEST_CASE("each rank of a world exists once") {
  const threads_world world(2);
  const threads_communicator first(world, 0);
  CHECK_THROWS_WITH(threads_communicator(world, 0), Catch::Contains("rank 0 of a world of 2"));
  CHECK_THROWS_AS(threads_communicator(world, 2), usage_error);
  CHECK_THROWS_AS(threads_communicator(world, -1), usage_error);
}

TEST_CASE("threads of the program's own can be ranks, and a communicator can move") {
  const threads_world world(2);
  std::optional<double> other_sum;
  std::thread other([&] {
    threads_communicator first(world, 1);
    threads_communicator comm = std::move(first);
    other_sum = sum_over_ranks(comm, 2);
  });
  threads_communicator comm(world, 0);
  const double sum = sum_over_ranks(comm, 1);
  other.join();
  CHECK(sum == 3);
  CHECK(other_sum == 3.0);
}

TEST_CASE("a wrong call is refused before peers are involved and harms nothing") {
  const auto texts = run_threads(2, long_timeout, [](threads_communicator& comm) {
    std::array<float, 8> data{};
    const rank_error error = error_of([&] {
      comm.reduce_scatter(range<const float, partial>(data.data(), 5),
                          range<float, shard>(data.data() + 5, 2));
    });
    return sum_over_ranks(comm, 1) == 2 ? error.text : "the sum is wrong";
  });
  CHECK(texts[1] ==
        "threads rank 1, reduce_scatter: the full range has 5 elements, but size x shard = 2 x 2");
}

TEST_CASE("fault_R3 the first cause is rethrown, not what it led to") {
  struct disk_is_full : std::runtime_error {
    using std::runtime_error::runtime_error;
    int code = 28;
  };
  SECTION("the object itself, with all its members") {
    int code = 0;
    try {
      run_threads(4, long_timeout, [](threads_communicator& comm) {
        if (comm.rank() == 2) throw disk_is_full("no space");
        sum_over_ranks(comm, 1);
      });
    } catch (const disk_is_full& e) {
      code = e.code;
    }
    CHECK(code == 28);
  }
  SECTION("an abort before the throw does not hide it") {
    const auto result = try_run_threads(3, long_timeout, [](threads_communicator& comm) {
      if (comm.rank() == 1) {
        comm.abort("about to throw");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        throw disk_is_full("no space");
      }
      sum_over_ranks(comm, 1);
    });
    CHECK(result.failed_rank() == 1);
    CHECK(describe(result.error(0)).says("about to throw"));
    CHECK_THROWS_AS(result.rethrow(), disk_is_full);
  }
  SECTION("not even a std::exception") {
    const auto result = try_run_threads(2, long_timeout, [](threads_communicator& comm) {
      if (comm.rank() == 0) throw 42;  // NOLINT: on purpose
      sum_over_ranks(comm, 1);
    });
    CHECK(result.failed_rank() == 0);
    CHECK_THROWS_AS(result.rethrow(), int);
    CHECK(describe(result.error(1)).says("not a std::exception"));
  }
  SECTION("values of a failed run throw it, too") {
    CHECK_THROWS_AS(run_threads(2, long_timeout,
                                [](threads_communicator& comm) {
                                  if (comm.rank() == 1) throw disk_is_full("no space");
                                  return sum_over_ranks(comm, 1);
                                }),
                    disk_is_full);
  }
  SECTION("ranks that were only aborted: the first of them") {
    const auto result = try_run_threads(2, long_timeout, [](threads_communicator& comm) {
      if (comm.rank() == 1) return comm.abort("enough");
      sum_over_ranks(comm, 1);
    });
    CHECK(result.failed_rank() == 0);
    CHECK(describe(result.cause()).says("enough"));
    CHECK(describe(result.cause()).where.peer == 1);
  }
}

TEST_CASE("a rank may catch the failure of a peer and return") {
  const auto result = try_run_threads(2, long_timeout, [](threads_communicator& comm) {
    if (comm.rank() == 1) throw std::runtime_error("boom");
    return error_of([&] { sum_over_ranks(comm, 1); }).kind == outcome::aborted;
  });
  CHECK(result.failed_rank() == 1);
  CHECK(!result.error(0));
}

TEST_CASE("an abort of the world reaches ranks that wait in a part of it") {
  // The parts outlive the ranks' functions: no rank is woken because a peer left its part.
  std::array<std::optional<threads_communicator>, 4> parts;
  std::array<std::optional<threads_communicator>, 4> smaller;
  const auto errors = outcomes(4, long_timeout, [&](threads_communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    parts[rank].emplace(comm.split(comm.rank() / 2));
    smaller[rank].emplace(parts[rank]->split(0));
    if (rank == 3) throw std::runtime_error("boom in rank 3");
    sum_over_ranks(rank == 2 ? *smaller[rank] : comm, 1);
  });
  for (const std::size_t rank : {0U, 1U, 2U}) {
    INFO(errors[rank].text);
    CHECK(errors[rank].kind == outcome::aborted);
    CHECK(errors[rank].says("boom in rank 3"));
  }
}

TEST_CASE("a part that failed does not harm the world it came from") {
  const auto sums = run_threads(4, long_timeout, [](threads_communicator& comm) {
    threads_communicator part = comm.split(comm.rank() / 2);
    if (comm.rank() == 0) part.abort("only this part");
    const rank_error error = error_of([&] { sum_over_ranks(part, 1); });
    const bool expected = comm.rank() < 2 ? error.kind == outcome::aborted
                                          : error.kind == outcome::returned;
    return sum_over_ranks(comm, expected ? 1 : 100);
  });
  CHECK(sums == std::vector<double>(4, 4.0));
}

TEST_CASE("fault_40 the error text names operation, number, type and count of both sides") {
  const auto errors = outcomes(2, long_timeout, [](threads_communicator& comm) {
    std::array<float, 8> data{};
    sum_over_ranks(comm, 1);
    if (comm.rank() == 0) {
      comm.all_gather(range<const float, shard>(data.data(), 2),
                      range<float, full>(data.data() + 2, 4));
    } else {
      comm.broadcast(range<float, full>(data.data(), 8), 1);
    }
  });
  for (const rank_error& error : errors) {
    CHECK(error.says("rank 0 called all_gather #1 of 4 x float32"));
    CHECK(error.says("rank 1 called broadcast #1 of 8 x float32 from root 1"));
  }
  CHECK(errors[0].where.peer == 1);
  CHECK(errors[1].where.peer == 0);
}

TEST_CASE("fault_43 a rank that ends before the first collective is named at once") {
  const auto errors = outcomes(3, long_timeout, [](threads_communicator& comm) {
    if (comm.rank() != 1) sum_over_ranks(comm, 1);
  });
  for (const std::size_t rank : {0U, 2U}) {
    CHECK(errors[rank].kind == outcome::aborted);
    CHECK(errors[rank].where.peer == 1);
    CHECK(errors[rank].says("threads rank " + std::to_string(rank) + ", all_reduce #0, peer 1"));
    CHECK(errors[rank].says("rank 1 left"));
  }
}

TEST_CASE("fault_R12 a rank that never comes is named after the timeout") {
  const threads_world world(3, short_timeout);
  std::array<rank_error, 2> errors;
  std::array<std::thread, 2> threads;
  for (const int rank : {0, 1}) {
    threads[static_cast<std::size_t>(rank)] = std::thread([&, rank] {
      threads_communicator comm(world, rank);
      errors[static_cast<std::size_t>(rank)] = error_of([&] { sum_over_ranks(comm, 1); });
      // A rank that left would change what its peer sees.
      std::this_thread::sleep_for(2 * short_timeout.timeout);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::timeout);
    CHECK(error.where.peer == 2);
    CHECK(error.says("for rank(s) 2"));
  }
}

TEST_CASE("a collective that all ranks have entered completes although it is aborted") {
  // Ranks read each other's buffers then: one that left would free what a peer reads, and the peer
  // would wait for it in vain. The abort comes right after the last rank entered, while the others
  // have still to wake up.
  const auto gather = [](threads_communicator& comm) {
    std::vector<float> data(3 * 500, 1.0F);
    comm.all_gather(range<const float, shard>(data.data() + 500 * comm.rank(), 500),
                    range<float, full>(data.data(), data.size()));
  };
  for (int i = 0; i < 200; ++i) {
    std::atomic<bool> entering{false};
    const auto kinds = run_threads(3, long_timeout, [&](threads_communicator& comm) {
      std::thread aborter;
      if (comm.rank() == 0) {
        aborter = std::thread([&] {
          while (!entering) std::this_thread::yield();
          comm.abort("now");
        });
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        entering = true;
      }
      const rank_error error = error_of([&] {
        gather(comm);
        if (aborter.joinable()) aborter.join();
        gather(comm);
      });
      if (aborter.joinable()) aborter.join();
      return error.kind;
    });
    REQUIRE(kinds == std::vector<outcome>(3, outcome::aborted));
  }
}

TEST_CASE("worlds come and go") {
  for (int i = 0; i < 300; ++i) {
    const auto sums = run_threads(3, [](threads_communicator& comm) {
      threads_communicator part = comm.split(0);
      return sum_over_ranks(part, 1);
    });
    REQUIRE(sums == std::vector<double>(3, 3.0));
  }
}
