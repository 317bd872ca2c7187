// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/backends/metered.hpp>
#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>

#include "support/rank_runner.hpp"

using namespace zero;

namespace {

/// One call of each kind: shards of 4 elements with 3 padding elements in the full range.
template <class Meter>
void call_each_once(Meter& meter) {
  const auto n = static_cast<std::uint64_t>(meter.size());
  std::vector<bfloat16> gradients(4 * n);
  std::vector<float> sums(4);
  std::vector<std::uint16_t> part(4);
  std::vector<std::uint16_t> flat(4 * n);
  std::vector<double> scalars(6);
  std::vector<std::uint64_t> words(8);
  meter.reduce_scatter(range<const bfloat16, partial>(gradients.data(), 4 * n, 3),
                       range<float, shard>(sums.data(), 4), {}, {});
  meter.all_gather(range<const std::uint16_t, shard>(part.data(), 4),
                   range<std::uint16_t, full>(flat.data(), 4 * n, 3), {});
  meter.all_reduce(range<double, full>(scalars.data(), 6), {});
  meter.broadcast(range<std::uint64_t, full>(words.data(), 8, 2), 0, {});
}

}  // namespace

TEST_CASE("the meter counts calls, elements, padding and bytes by kind") {
  for (const int size : {2, 3, 5}) {
    const auto counters = run_threads(size, [](threads_communicator& comm) {
      metered meter(comm);
      call_each_once(meter);
      call_each_once(meter);
      return meter.counters();
    });
    const auto n = static_cast<std::uint64_t>(size);
    for (std::size_t rank = 0; rank < n; ++rank) {
      const traffic_counters& seen = counters[rank];
      INFO("N = " << n << ", rank " << rank);
      const std::uint64_t peers = n - 1;
      // Two bytes an element: what travels is the input, not the sum that it becomes.
      CHECK(seen[collective::reduce_scatter] ==
            collective_counters{2, 2 * (4 * n - 3), 6, 2 * peers * 4 * 2});
      CHECK(seen[collective::all_gather] ==
            collective_counters{2, 2 * (4 * n - 3), 6, 2 * peers * 4 * 2});
      CHECK(seen[collective::all_reduce] == collective_counters{2, 12, 0, 2 * peers * 6 * 8});
      const std::uint64_t root_bytes = rank == 0 ? 2 * peers * 8 * 8 : 0;
      CHECK(seen[collective::broadcast] == collective_counters{2, 12, 4, root_bytes});
      CHECK(seen.wire_bytes() == 2 * peers * (8 + 8 + 48) + root_bytes);
    }
  }
}

TEST_CASE("over all ranks, a reduce-scatter puts N - 1 copies of the range on the wire") {
  const auto counters = run_threads(4, [](threads_communicator& comm) {
    metered meter(comm);
    call_each_once(meter);
    return meter.counters();
  });
  std::uint64_t bytes = 0;
  for (const auto& seen : counters) bytes += seen[collective::reduce_scatter].wire_bytes;
  CHECK(bytes == 3 * (4 * 4) * sizeof(bfloat16));
}

TEST_CASE("one rank sends nothing, so nothing counts") {
  self_communicator self;
  metered meter(self);
  meter.start_log(10);
  call_each_once(meter);
  CHECK(meter.counters() == traffic_counters{});
  CHECK(meter.log().empty());
}

TEST_CASE("the log holds the calls in order and never more than it was made for") {
  struct seen {
    std::vector<logged_collective> log;
    std::uint64_t unlogged;
    std::size_t after_reset;
  };
  const auto logs = run_threads(2, [](threads_communicator& comm) {
    metered meter(comm);
    call_each_once(meter);  // not logged
    meter.start_log(5);
    call_each_once(meter);
    call_each_once(meter);
    seen result{{meter.log().begin(), meter.log().end()}, meter.unlogged(), 0};
    meter.reset();
    meter.all_reduce(range<double, full>(nullptr, 0), {});
    result.after_reset = meter.log().size();
    return result;
  });
  const std::vector<logged_collective> expected{{collective::reduce_scatter, 5},
                                                {collective::all_gather, 5},
                                                {collective::all_reduce, 6},
                                                {collective::broadcast, 6},
                                                {collective::reduce_scatter, 5}};
  CHECK(logs[1].log == expected);
  CHECK(logs[1].unlogged == 3);
  CHECK(logs[1].after_reset == 1);
}

TEST_CASE("a call that is refused does not count") {
  const auto counted = run_threads(2, [](threads_communicator& comm) {
    metered meter(comm);
    float value = 0;
    const auto error =
        test::error_of([&] { meter.broadcast(range<float, full>(&value, 1), 9, {}); });
    return error.kind == test::outcome::usage && meter.counters() == traffic_counters{};
  });
  CHECK(counted == std::vector<bool>{true, true});
}

TEST_CASE("a part of a metered communicator counts for itself") {
  const auto right = run_threads(3, [](threads_communicator& comm) {
    metered meter(comm);
    auto part = meter.split(comm.rank() / 2);
    call_each_once(part);
    const bool alone = part.size() == 1;
    return meter.counters() == traffic_counters{} &&
           part.counters()[collective::all_reduce].calls == (alone ? 0U : 1U);
  });
  CHECK(right == std::vector<bool>(3, true));
}
