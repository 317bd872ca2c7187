// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
#include <catch2/catch.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <zero/backends/shm.hpp>
#include <zero/rendezvous/file_store.hpp>

#include "support/leftovers.hpp"
#include "support/process_runner.hpp"
#include "support/rank_runner.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

using namespace zero;
using zero::test::outcome;
using zero::test::rank_error;

namespace {

/// Elements of a shard: many chunks of this size.
constexpr std::uint64_t elements = 50'000;
constexpr shm_options small_chunks{.timeout = std::chrono::seconds(30), .chunk_bytes = 8192};

/// What a case left behind. Folders of tests that run at the same time are not its business.
std::string left_since(const test::leftovers& before) {
  std::istringstream lines(before.found());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("/zero_test_") == std::string::npos) text += line + '\n';
  }
  return text;
}

/// A world of processes that meet in a folder of its own.
class world {
 public:
  explicit world(int size, shm_options options = small_chunks) : size_(size), options_(options) {}

  int size() const noexcept { return size_; }
  shm_communicator join(int rank) const {
    file_store store(folder_ / "store", rank, size_);
    return shm_communicator(store, rank, size_, options_);
  }
  /// Forks the ranks; function(communicator) is what each does.
  template <class Function>
  auto start(Function function) const {
    return test::start_processes(
        size_, [this](int rank) { return join(rank); }, std::move(function));
  }

 private:
  int size_;
  shm_options options_;
  test::temporary_folder folder_;
};

double sum_of_ranks(shm_communicator& comm) {
  double value = comm.rank();
  comm.all_reduce(range<double, full>(&value, 1), {}).wait({});
  return value;
}

/// What survivors return: how their call ended.
template <class Processes>
void check_survivors(const world& ranks, Processes& running, int victim, const char* operation) {
  const std::string death =
      "rank " + std::to_string(victim) + " (pid " + std::to_string(running.pid(victim)) + ") died";
  const pid_t group = running.group();
  const auto result = running.collect();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    INFO("rank " << rank << " of " << ranks.size() << ", " << operation);
    if (rank == victim) {
      CHECK_THROWS_AS(result.value(rank), test::process_ended);
      continue;
    }
    const rank_error error = result.value(rank);
    INFO(error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.says(death));
    CHECK(error.where.peer == victim);
    CHECK(error.where.rank == rank);
    CHECK(error.where.elapsed_seconds < 10);
    if (*operation != '\0') CHECK(error.where.operation == operation);
  }
  CHECK(::kill(-group, 0) != 0);  // no process of the run is left
}

/// Where a range lies, and so which way its data takes.
enum class memory_kind { private_memory, shared };

/// One reduce-scatter below the communicator, whose fold can be stopped in the middle.
template <class Fold>
rank_error reduce_scatter_with(const world& ranks, int rank, memory_kind kind,
                               const test::temporary_folder& folder, Fold fold) {
  file_store store(folder / "store", rank, ranks.size());
  const detail::segment_layout layout{static_cast<std::uint64_t>(ranks.size()),
                                      small_chunks.chunk_bytes};
  auto transport =
      detail::join_shm_world(store, layout, rank, small_chunks.timeout, small_chunks.timeout);
  detail::transport_operation operation;
  operation.call.operation = "reduce_scatter";
  operation.start = detail::transport_operation::clock::now();
  operation.deadline = operation.start + small_chunks.timeout;
  const std::uint64_t count = static_cast<std::uint64_t>(ranks.size()) * elements;
  std::vector<float> own(count, 1.0F);
  const auto block = transport->make_block(count * sizeof(float), operation);
  const float* const in =
      kind == memory_kind::shared ? reinterpret_cast<const float*>(block->part(rank)) : own.data();
  return test::error_of([&] {
    transport->reduce_scatter(operation, in, elements,
                              [&](std::span<const float* const>, std::uint64_t first,
                                  std::uint64_t) { fold(*transport, first); });
  });
}

}  // namespace

TEST_CASE("R1 a rank that is killed while it sums ends the operation of all others") {
  const test::leftovers before;
  for (const memory_kind kind : {memory_kind::private_memory, memory_kind::shared}) {
    for (const int size : {2, 4}) {
      for (const int victim : {0, size - 1}) {
        const world ranks(size);
        const test::temporary_folder folder;
        auto running = test::start_bare_processes(size, [&](test::bare_rank& self) {
          return reduce_scatter_with(
              ranks, self.rank(), kind, folder, [&](auto&, std::uint64_t first) {
                // In shared memory all is summed at once; else this is the second chunk.
                const bool is_here = kind == memory_kind::shared || first > 0;
                if (self.rank() == victim && is_here) test::die_here("sum");
              });
        });
        check_survivors(ranks, running, victim, "reduce_scatter");
      }
    }
  }
  CHECK(left_since(before) == "");
}

TEST_CASE("what was read while a peer gave up is not taken for a result") {
  const world ranks(3);
  const test::temporary_folder folder;
  auto running = test::start_bare_processes(3, [&](test::bare_rank& self) {
    return reduce_scatter_with(ranks, self.rank(), memory_kind::shared, folder,
                               [&](auto& transport, std::uint64_t) {
                                 // All ranks come to the last meeting; none may call it a success.
                                 if (self.rank() == 1) transport.interrupt("gave up");
                               });
  });
  for (const rank_error& error : running.collect().values()) {
    INFO(error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.says("gave up"));
  }
}

TEST_CASE("R1 a rank that is killed before its first call, or between two, is named") {
  const test::leftovers before;
  for (const int calls_before : {0, 3}) {
    const world ranks(3);
    auto running = ranks.start([&](shm_communicator& comm) {
      for (int i = 0; i < calls_before; ++i) sum_of_ranks(comm);
      if (comm.rank() == 1) test::die_here("idle");
      return test::error_of([&] { sum_of_ranks(comm); });
    });
    check_survivors(ranks, running, 1, "all_reduce");
  }
  CHECK(left_since(before) == "");
}

TEST_CASE("R1 a rank that exits without a goodbye counts as dead") {
  const test::leftovers before;
  const world ranks(3);
  auto running = ranks.start([&](shm_communicator& comm) {
    sum_of_ranks(comm);
    if (comm.rank() == 2) ::_exit(0);
    return test::error_of([&] { sum_of_ranks(comm); });
  });
  check_survivors(ranks, running, 2, "all_reduce");
  CHECK(left_since(before) == "");
}

TEST_CASE("R1 a rank that is killed in a part is named by its number there") {
  const world ranks(4);
  auto running = ranks.start([&](shm_communicator& comm) {
    shm_communicator part = comm.split(comm.rank() == 0 ? 0 : 1);
    if (comm.rank() == 0) return rank_error{};
    if (comm.rank() == 3) test::die_here("part");
    return test::error_of([&] { sum_of_ranks(part); });
  });
  const std::string death = "rank 2 (pid " + std::to_string(running.pid(3)) + ") died";
  const auto result = running.collect();
  CHECK(result.value(0).kind == outcome::returned);
  for (const int rank : {1, 2}) {
    const rank_error error = result.value(rank);
    INFO(error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.says(death));
    CHECK(error.where.peer == 2);
    CHECK(error.where.rank == rank - 1);
  }
}

TEST_CASE("R1 a rank that is killed at any time ends all others") {
  const test::leftovers before;
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const int kills = test::full_counts() ? 200 : 16;
  for (int i = 0; i < kills; ++i) {
    const int size = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const world ranks(size);
    auto running = ranks.start([&](shm_communicator& comm) {
      const auto n = static_cast<std::uint64_t>(comm.size());
      const shm_memory memory = comm.shared_memory(n * elements * sizeof(float));
      std::vector<float> own(n * elements, 1.0F);
      std::vector<float> sums(elements);
      test::announce("start");
      return test::error_of([&] {
        for (;;) {
          for (float* const data : {own.data(), reinterpret_cast<float*>(memory.data())}) {
            comm.reduce_scatter(range<const float, partial>(data, n * elements),
                                range<float, shard>(sums.data(), elements), {}, {});
            comm.all_gather(range<const float, shard>(sums.data(), elements),
                            range<float, full>(data, n * elements), {});
            comm.broadcast(range<float, full>(data, elements), 0, {});
          }
        }
      });
    });
    running.wait_for(victim, "start");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    running.send_signal(victim, SIGKILL);
    check_survivors(ranks, running, victim, "");
  }
  CHECK(left_since(before) == "");
}

TEST_CASE("R1 a rank that is killed before it joins is named at the deadline") {
  const test::leftovers before;
  const test::temporary_folder folder;
  auto running = test::start_bare_processes(3, [&](test::bare_rank& self) {
    file_store store(folder / "store", self.rank(), 3);
    if (self.rank() == 1) test::die_here("joining");
    return test::error_of([&] {
      shm_communicator(store, self.rank(), 3, {.setup_timeout = std::chrono::milliseconds(500)});
    });
  });
  const pid_t group = running.group();
  const auto result = running.collect();
  for (const int rank : {0, 2}) {
    const rank_error error = result.value(rank);
    INFO(error.text);
    CHECK(error.kind == outcome::timeout);
  }
  CHECK(result.value(0).says("rank 1 did not come"));
  CHECK(::kill(-group, 0) != 0);  // no process of the run is left
  CHECK(left_since(before) == "");
}

TEST_CASE("R2 a rank that is stopped for less than the timeout disturbs nothing") {
  const world ranks(3);
  auto running = ranks.start([&](shm_communicator& comm) {
    double sum = sum_of_ranks(comm);
    if (comm.rank() == 1) test::stop_here("stop");
    for (int i = 0; i < 10; ++i) sum += sum_of_ranks(comm);
    return sum;
  });
  running.wait_until_stopped(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  running.send_signal(1, SIGCONT);
  CHECK(running.collect().values() == std::vector<double>(3, 33.0));
}

TEST_CASE("R2 a rank that is stopped for longer is named by all, and told when it wakes") {
  const world ranks(3, {.timeout = std::chrono::milliseconds(300)});
  auto running = ranks.start([&](shm_communicator& comm) {
    sum_of_ranks(comm);
    if (comm.rank() == 1) test::stop_here("stop");
    const rank_error error = test::error_of([&] { sum_of_ranks(comm); });
    test::announce("error");
    return error;
  });
  running.wait_until_stopped(1);
  running.wait_for(0, "error");
  running.wait_for(2, "error");
  running.send_signal(1, SIGCONT);
  const auto result = running.collect();
  for (int rank = 0; rank < 3; ++rank) {
    const rank_error error = result.value(rank);
    INFO("rank " << rank << ": " << error.text);
    CHECK(error.kind == (rank == 1 ? outcome::aborted : outcome::timeout));
    CHECK(error.says("s in all_reduce #1 of 1 x float64 for rank(s) 1"));
    CHECK(error.where.sequence == 1);
    if (rank != 1) CHECK(error.where.peer == 1);
  }
}

TEST_CASE("R12 two worlds at once do not see each other") {
  const test::leftovers before;
  const world first(3);
  const world second(2);
  const auto sums = [](shm_communicator& comm) {
    double sum = 0;
    for (int i = 0; i < 500; ++i) sum += sum_of_ranks(comm);
    return sum;
  };
  auto running_first = first.start(sums);
  auto running_second = second.start(sums);
  CHECK(running_first.collect().values() == std::vector<double>(3, 1500.0));
  CHECK(running_second.collect().values() == std::vector<double>(2, 500.0));
  CHECK(left_since(before) == "");
}

TEST_CASE("a child that is forked later can neither use nor harm the communicator") {
  const world ranks(2);
  auto running = ranks.start([&](shm_communicator& comm) -> std::string {
    std::vector<std::byte> expected(10'000, std::byte(comm.rank() + 1));
    {
      const shm_memory memory = comm.shared_memory(expected.size());
      std::copy(expected.begin(), expected.end(), memory.data());
      const pid_t child = ::fork();
      if (child == 0) {
        // What a child does by accident: a call, and the destructors.
        shm_communicator inherited = std::move(comm);
        shm_memory inherited_memory = std::move(const_cast<shm_memory&>(memory));
        const rank_error error = test::error_of([&] { sum_of_ranks(inherited); });
        inherited.abort("by the child");
        inherited_memory = shm_memory();
        { const shm_communicator gone = std::move(inherited); }
        ::_exit(error.kind == outcome::usage && error.says("after the fork") ? 7 : 8);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return "the child was not refused";
      if (!std::equal(expected.begin(), expected.end(), memory.data())) return "memory was lost";
    }
    return sum_of_ranks(comm) == 1 ? "" : "wrong sum";
  });
  CHECK(running.collect().values() == std::vector<std::string>(2));
}
