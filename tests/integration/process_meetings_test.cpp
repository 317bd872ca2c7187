// SPDX-License-Identifier: Apache-2.0
// labels: fault
// timeout: 300
// links: zero::gloo zero::rendezvous
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/gloo.hpp>
#include <zero/backends/shm.hpp>
#include <zero/rendezvous/file_store.hpp>
#include <zero/rendezvous/store.hpp>
#include <zero/rendezvous/tcp_store.hpp>

#include "support/leftovers.hpp"
#include "support/process_faults.hpp"
#include "support/process_runner.hpp"
#include "unit/rendezvous/loopback.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

// R12: ranks that come late, or never, or to the wrong place. Processes, both backends, both
// stores. Whatever goes wrong, every rank that is there gets a typed error at its deadline, and
// neither a file nor a port is left.

using namespace zero;
using namespace zero::test;
using namespace std::chrono_literals;

namespace {

constexpr auto short_wait = 500ms;
constexpr auto long_wait = 20000ms;
/// What an error may take beyond the deadline that it reports.
constexpr auto margin = 1000ms;

/// Where one job meets.
class place {
 public:
  explicit place(bool is_tcp) : is_tcp_(is_tcp), port_(is_tcp ? free_port() : std::uint16_t{0}) {}

  any_store open(int rank, int size, std::chrono::milliseconds timeout,
                 const std::string& run_id = "") const {
    if (!is_tcp_) {
      return any_store::make<file_store>(folder_ / "store", rank, size,
                                         file_store_options{run_id, timeout});
    }
    tcp_store_options options;
    options.run_id = run_id;
    options.timeout = timeout;
    return any_store::make<tcp_store>("127.0.0.1", port_, rank, size, options);
  }

  std::uint16_t port() const noexcept { return port_; }

  /// "" when neither files nor the port are taken.
  std::string taken() const {
    std::string text;
    for (const std::string& file : folder_.files()) text += "file " + file + "\n";
    if (is_tcp_ && !loopback_socket().bind_to(port_)) {
      text += "port " + std::to_string(port_) + "\n";
    }
    return text;
  }

 private:
  static std::uint16_t free_port() { return loopback_socket().listen(); }

  bool is_tcp_;
  std::uint16_t port_;
  temporary_folder folder_;
};

/// One backend with one store.
struct combination {
  process_ranks ranks;
  bool is_tcp;
};

std::vector<combination> combinations() {
  std::vector<combination> all;
  for (const bool is_tcp : {false, true}) {
    all.push_back({ranks_of<shm_communicator, shm_options>(), is_tcp});
    all.push_back({ranks_of<gloo_communicator, gloo_options>(), is_tcp});
  }
  return all;
}

/// Makes a rank's communicator, and sums rank + 1 over the world, times `weight`.
double meet_and_sum(const process_ranks& ranks, any_store store, int rank, int size,
                    std::chrono::milliseconds timeout, double weight = 1) {
  any_communicator communicator = ranks.make(store, rank, size, {timeout, timeout});
  double value = weight * (rank + 1);
  communicator.all_reduce(range<double, full>(&value, 1), {}).wait({});
  announce("met");
  return value;
}

double sum_of(int size, double weight = 1) {
  return weight * size * (size + 1) / 2;
}

/// What a rank's function threw, and how long after it began.
struct ending {
  rank_error error;
  std::chrono::duration<double> took{};
};

/// Runs the ranks and checks that nothing is left. `function(rank)` returns a sum.
template <class Function>
std::vector<ending> endings(const place& where, int size, Function function) {
  const leftovers before;
  auto running = start_bare_processes(size, [&](bare_rank& rank) {
    announce("begins");
    return function(rank.number);
  });
  const auto result = running.collect();
  std::vector<ending> all;
  for (int rank = 0; rank < size; ++rank) {
    const process_report& report = result.report(rank);
    all.push_back({describe(result.error(rank)), report.ended - report.reached("begins")});
  }
  CHECK(before.found(running.group()) == "");
  CHECK(where.taken() == "");
  return all;
}

/// Whether these ranks, and no other, got errors that say `part`, each in time.
void check_failed(const std::vector<ending>& all, std::initializer_list<int> ranks,
                  const std::string& part, std::chrono::milliseconds deadline) {
  for (const int rank : ranks) {
    const ending& end = all[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << " after " << end.took.count() << " s: " << end.error.text);
    const outcome kind = end.error.kind;
    CHECK((kind == outcome::error || kind == outcome::timeout || kind == outcome::mismatch ||
           kind == outcome::aborted || kind == outcome::communicator));
    CHECK(end.error.says(part));
    CHECK(end.took <= deadline + margin);
  }
}

template <class Function>
void for_each_combination(Function function) {
  for (const combination& chosen : combinations()) {
    INFO(chosen.ranks.backend << " over a " << (chosen.is_tcp ? "tcp" : "file") << " store");
    function(chosen.ranks, place(chosen.is_tcp));
  }
}

}  // namespace

TEST_CASE("R12 a rank that starts late within the timeout is waited for") {
  for_each_combination([](const process_ranks& ranks, const place& where) {
    for (const int late : {0, 2}) {
      const auto all = endings(where, 3, [&](int rank) {
        if (rank == late) std::this_thread::sleep_for(400ms);
        const double sum = meet_and_sum(ranks, where.open(rank, 3, long_wait), rank, 3, long_wait);
        if (sum != sum_of(3)) throw error("the sum is " + std::to_string(sum));
        return sum;
      });
      for (const ending& end : all) CHECK(end.error.text == "");
    }
  });
}

TEST_CASE("R12 a rank that is missing at the deadline is named by all others") {
  for_each_combination([](const process_ranks& ranks, const place& where) {
    for (const int missing : {0, 2}) {
      const auto all = endings(where, 3, [&](int rank) {
        if (rank == missing) return 0.0;
        // Rank 0 gathers the others; they have to be there still when it says who is missing.
        const auto wait = rank == 0 ? short_wait : 2 * short_wait;
        return meet_and_sum(ranks, where.open(rank, 3, wait), rank, 3, wait);
      });
      check_failed(
          all, missing == 0 ? std::initializer_list<int>{1, 2} : std::initializer_list<int>{0, 1},
          std::to_string(missing), 2 * short_wait);
    }
  });
}

TEST_CASE("R12 a rank that starts after the deadline finds nobody and says so") {
  for_each_combination([](const process_ranks& ranks, const place& where) {
    const auto all = endings(where, 2, [&](int rank) {
      if (rank == 1) std::this_thread::sleep_for(2 * short_wait);
      return meet_and_sum(ranks, where.open(rank, 2, short_wait), rank, 2, short_wait);
    });
    check_failed(all, {0}, "1", short_wait);
    check_failed(all, {1}, "0", 3 * short_wait);
  });
}

TEST_CASE("R12 a rank that comes to the store and never to the communicator is named") {
  for_each_combination([](const process_ranks& ranks, const place& where) {
    const auto all = endings(where, 3, [&](int rank) {
      any_store store = where.open(rank, 3, long_wait);
      if (rank == 2) {
        std::this_thread::sleep_for(2 * short_wait);
        return 0.0;
      }
      return meet_and_sum(ranks, std::move(store), rank, 3, short_wait);
    });
    // The store itself may take a moment to gather before the deadline begins.
    check_failed(all, {0, 1}, "2", short_wait + margin);
  });
}

TEST_CASE("R12 what a killed job left stops no later one, which may be larger") {
  for_each_combination([](const process_ranks& ranks, const place& where) {
    auto killed = start_bare_processes(2, [&](bare_rank& rank) {
      const double sum =
          meet_and_sum(ranks, where.open(rank.number, 2, long_wait), rank.number, 2, long_wait);
      return sum;
    });
    for (const int rank : {0, 1}) killed.wait_for(rank, "met");
    for (const int rank : {0, 1}) killed.send_signal(rank, SIGKILL);
    killed.collect();
    const auto all = endings(where, 3, [&](int rank) {
      const double sum = meet_and_sum(ranks, where.open(rank, 3, long_wait), rank, 3, long_wait);
      if (sum != sum_of(3)) throw error("the sum is " + std::to_string(sum));
      return sum;
    });
    for (const ending& end : all) CHECK(end.error.text == "");
  });
}

TEST_CASE("R12 two jobs at once do not meet") {
  for_each_combination([](const process_ranks& ranks, const place& where) {
    // In one directory they need run ids; ports they have one each.
    const place other(where.port() != 0);
    const leftovers before;
    const auto start = [&](const place& meets_at, const std::string& run_id, double weight) {
      return start_bare_processes(3, [&, run_id, weight](bare_rank& rank) {
        return meet_and_sum(ranks, meets_at.open(rank.number, 3, long_wait, run_id), rank.number, 3,
                            long_wait, weight);
      });
    };
    auto first = start(where, "job 1", 1);
    auto second = start(where.port() != 0 ? other : where, "job 2", 100);
    const auto first_result = first.collect();
    const auto second_result = second.collect();
    for (int rank = 0; rank < 3; ++rank) {
      INFO(describe(first_result.error(rank)).text << describe(second_result.error(rank)).text);
      REQUIRE_FALSE(first_result.error(rank));
      REQUIRE_FALSE(second_result.error(rank));
      CHECK(first_result.value(rank) == sum_of(3));
      CHECK(second_result.value(rank) == sum_of(3, 100));
    }
    CHECK(before.found(first.group()) == "");
    CHECK(before.found(second.group()) == "");
    CHECK(where.taken() == "");
    CHECK(other.taken() == "");
  });
}

TEST_CASE("R12 a rank with another world size ends the meeting for all, both sizes named") {
  for_each_combination([](const process_ranks& ranks, const place& where) {
    const auto all = endings(where, 3, [&](int rank) {
      const int size = rank == 1 ? 4 : 3;
      // After the others, so that no rank waits for a fourth one.
      if (rank == 1) std::this_thread::sleep_for(100ms);
      return meet_and_sum(ranks, where.open(rank, size, long_wait), rank, size, long_wait);
    });
    check_failed(all, {0, 1, 2}, "4", long_wait / 4);
    for (const ending& end : all) CHECK(end.error.says("3"));
  });
}

TEST_CASE("R12 a port that is taken is named by the rank that wanted it") {
  for (const combination& chosen : combinations()) {
    if (!chosen.is_tcp) continue;
    loopback_socket other;
    tcp_store_options options;
    options.timeout = short_wait;
    const std::uint16_t port = other.listen();
    const leftovers before;
    auto running = start_bare_processes(2, [&](bare_rank& rank) {
      any_store store = any_store::make<tcp_store>("127.0.0.1", port, rank.number, 2, options);
      return meet_and_sum(chosen.ranks, std::move(store), rank.number, 2, short_wait);
    });
    const auto result = running.collect();
    for (const int rank : {0, 1}) {
      const rank_error failed = describe(result.error(rank));
      INFO("rank " << rank << ": " << failed.text);
      CHECK(failed.kind == outcome::error);
      CHECK(failed.says(std::to_string(port)));
    }
    CHECK(before.found(running.group()) == "");
  }
}

TEST_CASE("R12 a rank of another job is turned away and disturbs nobody") {
  for (const combination& chosen : combinations()) {
    if (!chosen.is_tcp) continue;
    const place where(true);
    const auto all = endings(where, 3, [&](int rank) {
      const bool is_stranger = rank == 2;
      if (is_stranger) {
        std::this_thread::sleep_for(150ms);  // while job 1 is there
        return meet_and_sum(chosen.ranks, where.open(1, 2, short_wait, "job 2"), 1, 2, short_wait);
      }
      const any_store store = where.open(rank, 2, long_wait, "job 1");
      const double sum = meet_and_sum(chosen.ranks, store, rank, 2, long_wait);
      std::this_thread::sleep_for(800ms);  // the store stays open
      return sum;
    });
    CHECK(all[0].error.text == "");
    CHECK(all[1].error.text == "");
    check_failed(all, {2}, "job 2", short_wait);
  }
}
