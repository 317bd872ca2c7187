// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
// links: zero::gloo
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/backends/gloo.hpp>
#include <zero/rendezvous/file_store.hpp>

#include "support/leftovers.hpp"
#include "support/process_runner.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

// What happens to real processes, connected by Gloo, when one of them dies, stops or comes late.

using namespace zero;
using namespace zero::test;
using namespace std::chrono_literals;

namespace {

/// Makes the communicator of a rank, in its process.
auto connected(const temporary_folder& folder, int size, gloo_options options = {}) {
  return [path = folder / "store", size, options](int rank) {
    auto store = any_store::make<file_store>(path, rank, size);
    return gloo_communicator(store, rank, size, options);
  };
}

void all_reduce_once(gloo_communicator& comm) {
  double value = 1;
  comm.all_reduce(range<double, full>(&value, 1)).wait({});
}

/// Shards of 4 MiB: every message takes longer than a write to a socket.
constexpr std::size_t large_shard = std::size_t{1} << 20U;

enum class kind { reduce_scatter, all_gather, broadcast };

void move_much(gloo_communicator& comm, kind operation, std::vector<float>& all,
               std::vector<float>& part) {
  const range<float, full> everything(all.data(), all.size());
  switch (operation) {
    case kind::reduce_scatter:
      comm.reduce_scatter(range<const float, partial>(all.data(), all.size()),
                          range<float, shard>(part.data(), part.size()))
          .wait({});
      return;
    case kind::all_gather:
      comm.all_gather(range<const float, shard>(part.data(), part.size()), everything).wait({});
      return;
    case kind::broadcast:
      comm.broadcast(everything, 0).wait({});
  }
}

/// The survivors' errors are typed, name the victim, and come within a second of its death.
template <class Result>
void check_survivors(const Result& result, int size, int victim, const std::string& operation) {
  const auto death = result.report(victim).reached("death");
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    const rank_error error = describe(result.error(rank));
    INFO("N = " << size << ", victim " << victim << ", rank " << rank << ": " << error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.where.backend == "gloo");
    CHECK(error.where.peer == victim);
    CHECK(error.where.operation == operation);
    CHECK(error.says("rank " + std::to_string(victim) + " is gone"));
    CHECK(result.report(rank).ended - death < 1s);
  }
}

}  // namespace

TEST_CASE("fault_R1 Gloo: a rank killed inside a large message ends the others within a second") {
  const leftovers before;
  const auto operation = GENERATE(kind::reduce_scatter, kind::all_gather, kind::broadcast);
  const std::string name = operation == kind::reduce_scatter ? "reduce_scatter"
                           : operation == kind::all_gather   ? "all_gather"
                                                             : "broadcast";
  for (const int size : {2, 4}) {
    // Rank 0 is the root of the broadcasts.
    for (const int victim : {0, size - 1}) {
      const temporary_folder folder;
      const auto result =
          run_processes(size, connected(folder, size), [&](gloo_communicator& comm) {
            std::vector<float> part(large_shard, 1.0F);
            std::vector<float> all(large_shard * static_cast<std::size_t>(size), 1.0F);
            // When the victim has done this, no other rank is behind it.
            move_much(comm, operation, all, part);
            std::thread killer([&] {
              if (comm.rank() != victim) return;
              std::this_thread::sleep_for(30ms);
              die_here("death");
            });
            try {
              for (;;) move_much(comm, operation, all, part);
            } catch (...) {
              killer.join();
              throw;
            }
          });
      check_survivors(result, size, victim, name);
    }
  }
  CHECK(before.found(0, 2s) == "");
}

TEST_CASE("fault_R1 Gloo: a rank killed while the others compute ends their next collective") {
  for (const int size : {2, 3}) {
    const temporary_folder folder;
    const auto result = run_processes(size, connected(folder, size), [&](gloo_communicator& comm) {
      all_reduce_once(comm);
      if (comm.rank() == 1) die_here("death");
      std::this_thread::sleep_for(200ms);
      all_reduce_once(comm);
    });
    check_survivors(result, size, 1, "all_reduce");
  }
}

TEST_CASE("fault_R2 Gloo: a rank stopped for longer than the timeout is named by the others") {
  constexpr auto timeout = 500ms;
  for (const int size : {2, 3}) {
    const temporary_folder folder;
    const auto make = connected(folder, size, {.timeout = timeout});
    auto running = start_processes(size, make, [&](gloo_communicator& comm) {
      std::vector<float> part(large_shard);
      std::vector<float> all(large_shard * static_cast<std::size_t>(size));
      all_reduce_once(comm);
      if (comm.rank() == 1) stop_here("stopped");
      move_much(comm, kind::reduce_scatter, all, part);
    });
    running.wait_until_stopped(1);
    std::this_thread::sleep_for(timeout + 1s);
    running.send_signal(1, SIGCONT);
    const auto result = running.collect();
    for (int rank = 0; rank < size; ++rank) {
      const rank_error error = describe(result.error(rank));
      INFO("N = " << size << ", rank " << rank << ": " << error.text);
      CHECK(error.kind == (rank == 1 ? outcome::aborted : outcome::timeout));
      CHECK(error.where.operation == "reduce_scatter");
      if (rank == 1) continue;
      CHECK(error.says("for rank(s) 1"));
      CHECK(error.where.elapsed_seconds > 0.5);
      CHECK(error.where.elapsed_seconds < 1.5);
    }
  }
}

TEST_CASE("fault_R2 Gloo: a rank stopped for less than the timeout delays the others") {
  const temporary_folder folder;
  const auto make = connected(folder, 3, {.timeout = 20s});
  auto running = start_processes(3, make, [&](gloo_communicator& comm) {
    std::vector<float> part(large_shard);
    std::vector<float> all(large_shard * 3, static_cast<float>(comm.rank()));
    all_reduce_once(comm);
    if (comm.rank() == 1) stop_here("stopped");
    move_much(comm, kind::reduce_scatter, all, part);
    move_much(comm, kind::all_gather, all, part);
    std::uint64_t wrong = 0;
    for (const float value : all) {
      if (value != 3.0F) ++wrong;
    }
    return std::to_string(wrong) + " wrong";
  });
  running.wait_until_stopped(1);
  std::this_thread::sleep_for(300ms);
  running.send_signal(1, SIGCONT);
  CHECK(running.collect().values() == std::vector<std::string>(3, "0 wrong"));
}

TEST_CASE("Gloo: a process that exits right after its last collective disturbs nobody") {
  for (int run = 0; run < 3; ++run) {
    const temporary_folder folder;
    const auto result = run_processes(3, connected(folder, 3), [&](gloo_communicator& comm) {
      std::vector<float> part(large_shard, static_cast<float>(comm.rank()));
      std::vector<float> all(large_shard * 3);
      if (comm.rank() == run) std::this_thread::sleep_for(20ms);
      move_much(comm, kind::all_gather, all, part);
      std::uint64_t wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != static_cast<float>(i / large_shard)) ++wrong;
      }
      return std::to_string(wrong) + " wrong";
    });
    CHECK(result.values() == std::vector<std::string>(3, "0 wrong"));
  }
}

TEST_CASE("fault_R12 Gloo: a rank that starts late is waited for, until the deadline") {
  const auto start = [](auto setup_timeout, auto late) {
    const temporary_folder folder;
    const auto make = connected(folder, 2, {.setup_timeout = setup_timeout});
    const auto delayed = [&](int rank) {
      if (rank == 0) std::this_thread::sleep_for(late);
      return make(rank);
    };
    return describe(run_processes(2, delayed, all_reduce_once).error(1));
  };
  CHECK(start(20s, 300ms).kind == outcome::returned);
  // Gloo alone gives up after 30 s, whatever its timeout.
  if (full_counts()) CHECK(start(60s, 32s).kind == outcome::returned);
}
