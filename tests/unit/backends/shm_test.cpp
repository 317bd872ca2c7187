// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 120
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <zero/backends/shm.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "support/allocation_counter.hpp"
#include "support/leftovers.hpp"
#include "support/rank_runner.hpp"

using namespace zero;
using zero::test::outcome;
using zero::test::rank_error;

namespace {

using float_range = range<float, full>;

/// Calls function(communicator) on threads that share memory.
template <class Function>
auto run_shm(int size, shm_options options, Function function) {
  memory_store store;
  return try_run_threads(size, test::long_timeout, [&](threads_communicator& thread) {
    shm_communicator communicator(store, thread.rank(), size, options);
    return function(communicator);
  });
}

template <class Function>
auto values_of(int size, shm_options options, Function function) {
  return run_shm(size, options, function).values();
}

template <class Function>
std::vector<rank_error> errors_of(int size, shm_options options, Function function) {
  const auto result = run_shm(size, options, function);
  std::vector<rank_error> errors;
  for (int rank = 0; rank < size; ++rank) errors.push_back(test::describe(result.error(rank)));
  return errors;
}

double sum_of_ranks(shm_communicator& comm) {
  double value = comm.rank();
  comm.all_reduce(range<double, full>(&value, 1), {}).wait({});
  return value;
}

/// Of this process, in which all ranks are.
int mapped_segments() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("zero-shm") != std::string::npos ? 1 : 0;
  }
  return count;
}

std::uint64_t shared_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::uint64_t kibibytes = 0;
  while (status >> word) {
    if (word == "RssShmem:") status >> kibibytes;
  }
  return kibibytes * 1024;
}

}  // namespace

TEST_CASE("the halves of windows and the slots of a segment do not overlap") {
  for (const std::uint64_t size : {1U, 2U, 3U, 8U, 100U}) {
    for (const std::uint64_t chunk : {64U * 100U, 4096U, 262144U}) {
      const detail::segment_layout layout{size, chunk};
      std::uint64_t end = layout.slots() + size * sizeof(detail::rank_slot);
      CHECK(layout.slots() >= sizeof(detail::segment_header));
      for (std::uint64_t rank = 0; rank < size; ++rank) {
        CHECK(layout.window(rank, 0) % detail::segment_layout::page_bytes == 0);
        for (const std::uint64_t half : {0U, 1U}) {
          CHECK(layout.window(rank, half) >= end);
          end = layout.window(rank, half) + chunk;
        }
      }
      CHECK(layout.bytes() >= end);
    }
  }
}

TEST_CASE("a call keeps its meaning in shared memory, texts that are too long are cut") {
  detail::collective_call call = detail::describe_sum<bfloat16, float>(12, 0.5F);
  call.sequence = 7;
  call.root = 3;
  detail::published_call published = {};
  published.assign(call);
  CHECK(published.view() == call);
  CHECK(published.view().describe() == call.describe());
  detail::fixed_text<4> text = {};
  text.assign("abcdef");
  CHECK(text.view() == "abcd");
}

TEST_CASE("settings that cannot be are refused before any rank is involved") {
  memory_store store;
  const auto refusal = [&](int rank, int size, shm_options options) {
    return test::error_of([&] { shm_communicator(store, rank, size, options); });
  };
  using std::chrono::nanoseconds;
  const rank_error refusals[] = {
      refusal(2, 2, {}),
      refusal(-1, 2, {}),
      refusal(0, 0, {}),
      refusal(0, 2, {.timeout = nanoseconds(0)}),
      refusal(0, 2, {.setup_timeout = nanoseconds(-5)}),
      refusal(0, 2, {.chunk_bytes = 127}),
      refusal(0, 2, {.chunk_bytes = std::uint64_t{1} << 41U}),
  };
  const char* const parts[] = {"rank 2 of a world of 2",   "rank -1",  "world of 0",
                               "timeout of 0 ns",          "of -5 ns", "64 x size = 128",
                               "chunk_bytes 2199023255552"};
  for (std::size_t i = 0; i < std::size(parts); ++i) {
    INFO(refusals[i].text);
    CHECK(refusals[i].kind == outcome::usage);
    CHECK(refusals[i].says(parts[i]));
  }
}

TEST_CASE("R12 a rank that never comes is named by all, at the deadline of the setup") {
  memory_store store;
  const shm_options options{.setup_timeout = std::chrono::milliseconds(200)};
  const auto errors = test::outcomes(3, test::long_timeout, [&](threads_communicator& thread) {
    if (thread.rank() == 2) return;
    shm_communicator(store, thread.rank(), 3, options);
  });
  for (const int rank : {0, 1}) {
    const rank_error& error = errors[static_cast<std::size_t>(rank)];
    INFO(error.text);
    CHECK(error.kind == outcome::timeout);
    CHECK(error.where.backend == "shm");
    CHECK(error.where.rank == rank);
  }
  CHECK(errors[0].where.peer == 2);
  CHECK(errors[0].says("rank 2 did not come"));
}

TEST_CASE("R12 without rank 0 the others say so") {
  memory_store store;
  const rank_error error = test::error_of(
      [&] { shm_communicator(store, 1, 2, {.setup_timeout = std::chrono::milliseconds(50)}); });
  INFO(error.text);
  CHECK(error.kind == outcome::timeout);
  CHECK(error.where.peer == 0);
  CHECK(error.says("rank 0 did not come"));
}

TEST_CASE("R9 R12 ranks that were given different sizes or chunks all say which") {
  const auto errors_with = [](int size_of_rank_1, std::uint64_t chunk_of_rank_1) {
    memory_store store;
    return test::outcomes(2, test::long_timeout, [&](threads_communicator& thread) {
      const bool odd = thread.rank() == 1;
      shm_communicator(store, thread.rank(), odd ? size_of_rank_1 : 2,
                       {.chunk_bytes = odd ? chunk_of_rank_1 : 4096});
    });
  };
  for (const rank_error& error : errors_with(3, 4096)) {
    INFO(error.text);
    CHECK(error.kind == outcome::mismatch);
    CHECK(error.says("rank 0 was given size 2, rank 1 3"));
  }
  for (const rank_error& error : errors_with(2, 8192)) {
    INFO(error.text);
    CHECK(error.kind == outcome::mismatch);
    CHECK(error.says("rank 0 was given chunk_bytes 4096, rank 1 8192"));
  }
}

TEST_CASE("R9 memory of different sizes is a mismatch on every rank") {
  for (const rank_error& error : errors_of(3, {}, [](shm_communicator& comm) {
         comm.shared_memory(comm.rank() == 2 ? 200 : 100);
       })) {
    INFO(error.text);
    CHECK(error.kind == outcome::mismatch);
    CHECK(error.says("rank 0 called shared_memory #0 of 100 x byte"));
    CHECK(error.says("rank 2 called shared_memory #0 of 200 x byte"));
  }
}

TEST_CASE("memory that ranks share is each rank's own, zero and aligned") {
  const auto texts = values_of(3, {}, [](shm_communicator& comm) -> std::string {
    for (const std::uint64_t bytes : {0U, 1U, 4096U, 100'000U}) {
      const shm_memory memory = comm.shared_memory(bytes);
      if (memory.size_bytes() != bytes || memory.bytes().size() != bytes) return "wrong size";
      if (reinterpret_cast<std::uintptr_t>(memory.data()) % 4096 != 0) return "not aligned";
      for (std::byte& byte : memory.bytes()) {
        if (byte != std::byte{0}) return "not zero";
        byte = std::byte(comm.rank() + 1);
      }
      sum_of_ranks(comm);
      for (const std::byte byte : memory.bytes()) {
        if (byte != std::byte(comm.rank() + 1)) return "changed by another rank";
      }
    }
    return "";
  });
  CHECK(texts == std::vector<std::string>(3));
}

TEST_CASE("memory stays usable after its communicator and gives its pages back when it goes") {
  constexpr std::uint64_t bytes = std::uint64_t{8} << 20U;
  const std::uint64_t before = shared_resident_bytes();
  std::vector<shm_memory> kept(2);
  run_shm(2, {}, [&](shm_communicator& comm) {
    kept[static_cast<std::size_t>(comm.rank())] = comm.shared_memory(bytes);
  }).rethrow();
  for (shm_memory& memory : kept) memory.bytes().back() = std::byte{1};
  CHECK(shared_resident_bytes() >= before + 2 * bytes);
  kept.clear();
  CHECK(shared_resident_bytes() < before + bytes);
}

TEST_CASE("pages of a rank go back at once, whatever its peers still hold") {
  constexpr std::uint64_t bytes = std::uint64_t{8} << 20U;
  const std::uint64_t before = shared_resident_bytes();
  std::uint64_t during = 0;
  run_shm(2, {}, [&](shm_communicator& comm) {
    std::optional<shm_memory> memory = comm.shared_memory(bytes);
    sum_of_ranks(comm);
    if (comm.rank() == 1) memory.reset();
    sum_of_ranks(comm);
    if (comm.rank() == 0) during = shared_resident_bytes();
    sum_of_ranks(comm);
  }).rethrow();
  CHECK(during >= before + bytes);
  CHECK(during < before + 2 * bytes);
}

TEST_CASE("some ranks in shared memory and some not is the same sum") {
  constexpr std::uint64_t elements = 30'000;
  const auto sums = values_of(3, {.chunk_bytes = 4096}, [](shm_communicator& comm) {
    const shm_memory memory = comm.shared_memory(3 * elements * sizeof(float));
    std::vector<float> own(3 * elements);
    float* const data = comm.rank() == 1 ? own.data() : reinterpret_cast<float*>(memory.data());
    std::iota(data, data + 3 * elements, static_cast<float>(comm.rank()));
    std::vector<float> sum(elements);
    comm.reduce_scatter(range<const float, partial>(data, 3 * elements),
                        range<float, shard>(sum.data(), elements), {}, {});
    comm.all_gather(range<const float, shard>(sum.data(), elements),
                    float_range(data, 3 * elements), {});
    // Root 1 has private memory, root 2 shared memory.
    comm.broadcast(float_range(data, elements), 1, {});
    comm.broadcast(float_range(data + elements, elements), 2, {});
    for (std::uint64_t i = 0; i < 3 * elements; ++i) {
      if (data[i] != static_cast<float>(3 * i + 3)) return std::string("wrong");
    }
    return std::string();
  });
  CHECK(sums == std::vector<std::string>(3));
}

TEST_CASE("a failure of a communicator reaches what was split from it, also on other ranks") {
  for (const rank_error& error :
       errors_of(4, {.timeout = std::chrono::seconds(30)}, [](shm_communicator& comm) {
         shm_communicator pair = comm.split(comm.rank() / 2);
         shm_communicator solo = pair.split(comm.rank());
         sum_of_ranks(pair);
         // Ranks 2 and 3 have no part in common with the rank that aborts.
         if (comm.rank() == 0) comm.abort("enough");
         if (comm.rank() != 2) sum_of_ranks(pair);
         std::this_thread::sleep_for(std::chrono::milliseconds(100));
         sum_of_ranks(pair);
       })) {
    INFO(error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.says("enough"));
  }
}

TEST_CASE("a part goes on when the communicator it came from is destroyed") {
  const auto sums = values_of(4, {}, [](shm_communicator& comm) {
    std::optional<shm_communicator> whole = std::move(comm);
    shm_communicator part = whole->split(whole->rank() % 2);
    whole.reset();
    return sum_of_ranks(part);
  });
  CHECK(sums == std::vector<double>{1, 1, 1, 1});
}

TEST_CASE("worlds follow each other in one store") {
  memory_store store;
  const auto sums = run_threads(3, [&](threads_communicator& thread) {
    double sum = 0;
    for (int i = 0; i < 50; ++i) {
      shm_communicator comm(store, thread.rank(), 3);
      sum += sum_of_ranks(comm);
    }
    return sum;
  });
  CHECK(sums == std::vector<double>(3, 150.0));
}

TEST_CASE("R16 a thousand worlds leave no descriptor, thread, mapping or file") {
  const test::leftovers before;
  memory_store store;
  try_run_threads(2, test::long_timeout, [&](threads_communicator& thread) {
    for (int i = 0; i < 1000; ++i) {
      shm_communicator comm(store, thread.rank(), 2, {.chunk_bytes = 4096});
      const shm_memory memory = comm.shared_memory(10);
      shm_communicator part = comm.split(i % 2 * thread.rank());
      sum_of_ranks(part);
    }
  }).rethrow();
  CHECK(before.found() == "");
  CHECK(mapped_segments() == 0);
}

TEST_CASE("a communicator returns the blocks that all ranks have given up") {
  const auto counts = values_of(2, {}, [](shm_communicator& comm) {
    int most = 0;
    for (int i = 0; i < 100; ++i) {
      { const shm_memory memory = comm.shared_memory(100); }
      sum_of_ranks(comm);
      most = std::max(most, mapped_segments());
    }
    return most;
  });
  // Both ranks are in this process: two control segments, and at most two blocks on their way.
  for (const int most : counts) CHECK(most <= 8);
}

TEST_CASE("collectives in shared memory allocate nothing, the first included") {
  for (const int size : {1, 2, 3, 5}) {
    const auto counts = values_of(size, {.chunk_bytes = 1024}, [](shm_communicator& comm) {
      const auto n = static_cast<std::uint64_t>(comm.size());
      constexpr std::uint64_t elements = 5000;
      const shm_memory memory = comm.shared_memory(n * elements * sizeof(float));
      std::vector<float> own(n * elements, 1.0F);
      std::vector<float> shard_values(elements);
      std::vector<double> doubles(1500, 1.0);
      const std::uint64_t before = test::allocations_of_this_thread();
      for (float* const data : {own.data(), reinterpret_cast<float*>(memory.data())}) {
        comm.reduce_scatter(range<const float, partial>(data, n * elements),
                            range<float, shard>(shard_values.data(), elements), {}, {});
        comm.all_gather(range<const float, shard>(shard_values.data(), elements),
                        float_range(data, n * elements), {});
        comm.broadcast(float_range(data, n * elements), 0, {});
        comm.all_reduce(range<double, full>(doubles.data(), doubles.size()), {});
      }
      return test::allocations_of_this_thread() - before;
    });
    INFO("N = " << size);
    CHECK(counts == std::vector<std::uint64_t>(static_cast<std::size_t>(size), 0));
  }
}
