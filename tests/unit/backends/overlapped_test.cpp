// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <zero/backends/faulty.hpp>
#include <zero/backends/overlapped.hpp>
#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>

#include "support/allocation_counter.hpp"
#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;
using namespace std::chrono_literals;

namespace {

using overlapped_threads = overlapped<threads_communicator>;
static_assert(Communicator<overlapped_threads, float> && CanSplit<overlapped_threads>);
static_assert(Communicator<overlapped_threads, bfloat16>);
static_assert(sizeof(overlapped_threads::work) <= 64);

template <class C>
typename C::work start_sum(C& comm, double& value) {
  return comm.all_reduce(range<double, full>(&value, 1), {});
}

template <class C>
typename C::work start_broadcast(C& comm, float& value) {
  return comm.broadcast(range<float, full>(&value, 1), 0, {});
}

}  // namespace

TEST_CASE("a call returns before the peers have come, and its result is there after wait") {
  // Rank 1 makes no call before rank 0 has started all of its own: a call that blocked would wait
  // for ever, and end by the timeout.
  std::atomic<bool> is_started{false};
  const auto sums = run_threads(2, long_timeout, [&](threads_communicator& inner) {
    overlapped_threads comm(inner);
    std::array<float, 4> in{1, 2, 3, 4};
    std::array<std::array<float, 2>, 8> out{};
    std::array<overlapped_threads::work, 8> works;
    while (inner.rank() == 1 && !is_started) std::this_thread::sleep_for(1ms);
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i] = comm.reduce_scatter(range<const float, partial>(in.data(), 4),
                                     range<float, shard>(out[i].data(), 2), {}, {});
    }
    is_started = true;
    for (auto& work : works) work.wait({});
    float sum = 0;
    for (const auto& each : out) sum += each[0] + each[1];
    return sum;
  });
  CHECK(sums == std::vector<float>{8 * 2 * (1 + 2), 8 * 2 * (3 + 4)});
}

TEST_CASE("an all_reduce behind calls in flight keeps its place") {
  const auto right = run_threads(3, long_timeout, [](threads_communicator& inner) {
    overlapped_threads comm(inner);
    for (int round = 0; round < 200; ++round) {
      float value = static_cast<float>(inner.rank() == 0 ? round : -1);
      double sum = 1;
      auto first = start_broadcast(comm, value);
      auto second = start_sum(comm, sum);
      second.wait({});
      if (sum != 3 || value != static_cast<float>(round)) return false;
      first.wait({});
      start_sum(comm, sum).wait({});  // nothing in flight: runs here
      if (sum != 9) return false;
    }
    return true;
  });
  CHECK(right == std::vector<bool>(3, true));
}

TEST_CASE(
    "an error surfaces in wait and from then on in every call of an overlapped communicator") {
  self_communicator self;
  faulty fault(self);
  fault.arm({.kind = fault_kind::throw_before, .call = 1});
  overlapped comm(fault);
  float value = 1;
  auto good = start_broadcast(comm, value);
  auto bad = start_broadcast(comm, value);
  CHECK_NOTHROW(good.wait({}));
  CHECK_THROWS_AS(bad.wait({}), injected_fault);
  CHECK_THROWS_AS(start_broadcast(comm, value), injected_fault);
  double sum = 1;
  CHECK_THROWS_AS(start_sum(comm, sum), injected_fault);
}

TEST_CASE("the next overlapped call throws the error that a dropped handle found") {
  self_communicator self;
  faulty fault(self);
  fault.arm({.kind = fault_kind::throw_before});
  overlapped comm(fault);
  float value = 1;
  { auto dropped = start_broadcast(comm, value); }
  CHECK_THROWS_AS(start_broadcast(comm, value), injected_fault);
}

TEST_CASE("a dropped handle waits no longer than the deadline of its operation") {
  const auto errors = outcomes(2, short_timeout, [](threads_communicator& inner) {
    overlapped_threads comm(inner);
    if (inner.rank() == 1) {
      std::this_thread::sleep_for(4 * short_timeout.timeout);
      return;
    }
    float value = 1;
    { auto dropped = start_broadcast(comm, value); }
    start_broadcast(comm, value).wait({});
  });
  CHECK(errors[0].kind == outcome::timeout);
  CHECK(errors[0].says("for rank(s) 1"));
  CHECK(errors[1].kind == outcome::returned);
}

TEST_CASE("a communicator that is destroyed with calls in flight ends them") {
  const auto errors = outcomes(2, long_timeout, [](threads_communicator& inner) {
    float value = 1;
    if (inner.rank() == 1) {
      // Comes only when rank 0 has left, and hears of it at once.
      std::this_thread::sleep_for(100ms);
      start_broadcast(inner, value).wait({});
      return;
    }
    // Handles must not outlive the communicator; this one is never destroyed.
    alignas(overlapped_threads::work) std::byte orphan[sizeof(overlapped_threads::work)];
    overlapped_threads comm(inner);
    new (orphan) overlapped_threads::work(start_broadcast(comm, value));
  });
  CHECK(errors[0].kind == outcome::returned);
  CHECK(errors[1].kind == outcome::aborted);
  CHECK(errors[1].says("destroyed with operations in flight"));
}

TEST_CASE("an abort from any thread ends what is in flight") {
  const auto errors = outcomes(2, long_timeout, [](threads_communicator& inner) {
    overlapped_threads comm(inner);
    float value = 1;
    if (inner.rank() == 1) {
      start_broadcast(comm, value).wait({});
      start_broadcast(comm, value).wait({});  // rank 0 never makes this one
      return;
    }
    start_broadcast(comm, value).wait({});
    std::thread other([&] {
      std::this_thread::sleep_for(10ms);
      comm.abort("the operator pressed stop");
    });
    other.join();
    start_broadcast(comm, value).wait({});
  });
  for (const rank_error& error : errors) {
    CHECK(error.kind == outcome::aborted);
    CHECK(error.says("the operator pressed stop"));
  }
}

TEST_CASE("a wrong range is refused by the call, and the communicator goes on") {
  const auto errors = run_threads(2, long_timeout, [](threads_communicator& inner) {
    overlapped_threads comm(inner);
    std::array<float, 8> data{};
    const rank_error error = error_of([&] {
      comm.all_gather(range<const float, shard>(data.data(), 3),
                      range<float, full>(data.data() + 3, 5), {});
    });
    double sum = 1;
    start_sum(comm, sum).wait({});
    return error.kind == outcome::usage && error.says("size x shard = 2 x 3") && sum == 2;
  });
  CHECK(errors == std::vector<bool>{true, true});
}

TEST_CASE("starting and waiting for an overlapped call allocate nothing") {
  const auto allocations = run_threads(2, long_timeout, [](threads_communicator& inner) {
    overlapped_threads comm(inner);
    std::vector<float> values(2000, 1.0F);
    const auto own = static_cast<std::size_t>(inner.rank()) * 1000;
    double sum = 1;
    const auto before = allocations_of_this_thread();
    for (int i = 0; i < 50; ++i) {
      auto scatter = comm.reduce_scatter(range<const float, partial>(values.data(), values.size()),
                                         range<float, shard>(values.data() + own, 1000), {}, {});
      auto gather = comm.all_gather(range<const float, shard>(values.data() + own, 1000),
                                    range<float, full>(values.data(), values.size()), {});
      start_sum(comm, sum).wait({});
      gather.wait({});
      scatter.wait({});
      start_sum(comm, sum).wait({});
    }
    return allocations_of_this_thread() - before;
  });
  CHECK(allocations == std::vector<std::uint64_t>{0, 0});
}
