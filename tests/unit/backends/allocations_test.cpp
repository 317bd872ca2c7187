// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/delaying.hpp>
#include <zero/backends/faulty.hpp>
#include <zero/backends/metered.hpp>
#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>

#include "support/allocation_counter.hpp"

using namespace zero;

namespace {

/// The compiler may leave out an allocation that is freed at once, unless its address goes here.
void* volatile escaped = nullptr;

/// Allocations of this thread while it calls every collective, the very first calls included.
template <class C>
std::uint64_t allocations_in_collectives(C& comm, int rounds) {
  const auto n = static_cast<std::uint64_t>(comm.size());
  const std::uint64_t elements = 1000;
  std::vector<float> full_values(n * elements, 1.0F);
  std::vector<float> shard_values(elements, 1.0F);
  std::vector<bfloat16> half_values(n * elements, bfloat16(1.0F));
  std::vector<double> doubles(1500, 1.0);
  const std::uint64_t before = test::allocations_of_this_thread();
  for (int i = 0; i < rounds; ++i) {
    comm.reduce_scatter(range<const float, partial>(full_values.data(), full_values.size()),
                        range<float, shard>(shard_values.data(), elements), reduce_options{},
                        host_queue{})
        .wait({});
    comm.reduce_scatter(range<const bfloat16, partial>(half_values.data(), half_values.size()),
                        range<float, shard>(shard_values.data(), elements), reduce_options{0.5F},
                        host_queue{})
        .wait({});
    comm.all_gather(range<const float, shard>(shard_values.data(), elements),
                    range<float, full>(full_values.data(), full_values.size()), host_queue{})
        .wait({});
    comm.all_reduce(range<double, full>(doubles.data(), doubles.size()), host_queue{}).wait({});
    comm.broadcast(range<float, full>(full_values.data(), full_values.size()), 0, host_queue{})
        .wait({});
  }
  return test::allocations_of_this_thread() - before;
}

}  // namespace

TEST_CASE("the counter of allocations sees every kind, on this thread only") {
  const auto counted = [](auto allocate) {
    const std::uint64_t before = test::allocations_of_this_thread();
    allocate();
    return test::allocations_of_this_thread() - before;
  };
  struct alignas(128) wide {
    int value = 0;
  };
  CHECK(counted([] {
          auto* value = new int(1);
          escaped = value;
          delete value;
        }) == 1);
  CHECK(counted([] {
          auto* values = new int[7];
          escaped = values;
          delete[] values;
        }) == 1);
  CHECK(counted([] {
          auto* value = new wide;
          escaped = value;
          delete value;
        }) == 1);
  std::uint64_t elsewhere = 0;
  const std::uint64_t before = test::allocations_of_this_thread();
  run_threads(1, [&](threads_communicator&) {
    elsewhere = counted([] { escaped = std::make_unique<int>(1).get(); });
  });
  const std::uint64_t first = test::allocations_of_this_thread() - before;
  CHECK(elsewhere == 1);
  CHECK(first > 0);  // run_threads itself
}

TEST_CASE("collectives of one rank allocate nothing") {
  self_communicator self;
  CHECK(allocations_in_collectives(self, 3) == 0);
}

TEST_CASE("collectives of threads allocate nothing, the first included") {
  for (const int size : {1, 2, 3, 4, 9}) {
    const auto counts = run_threads(size, [](threads_communicator& comm) {
      return allocations_in_collectives(comm, 5);
    });
    INFO("N = " << size);
    CHECK(counts == std::vector<std::uint64_t>(static_cast<std::size_t>(size), 0));
  }
}

TEST_CASE("decorators and the type-erased communicator allocate nothing in a call") {
  const auto counts = run_threads(3, [](threads_communicator& comm) {
    metered meter(comm);
    meter.start_log(4);
    delaying delay(meter);
    faulty fault(delay);
    any_communicator any(fault);
    const std::uint64_t straight = allocations_in_collectives(any, 5);
    delay.configure({.max_delay = std::chrono::microseconds(20), .seed = 1});
    return straight + allocations_in_collectives(any, 5);
  });
  CHECK(counts == std::vector<std::uint64_t>(3, 0));
}
