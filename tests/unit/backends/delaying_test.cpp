// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <zero/backends/delaying.hpp>
#include <zero/backends/faulty.hpp>
#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>

#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;

namespace {

constexpr delaying_options slow{.max_delay = std::chrono::milliseconds(2), .seed = 11};

template <class C>
typename C::work start_sum(C& comm, double& value) {
  return comm.all_reduce(range<double, full>(&value, 1), {});
}

}  // namespace

TEST_CASE("a delayed call is done when wait returns") {
  self_communicator self;
  delaying delay(self, {.max_delay = std::chrono::milliseconds(50), .seed = 1});
  const std::array<float, 2> in{1, 2};
  std::array<float, 2> out{};
  auto work = delay.all_gather(range<const float, shard>(in.data(), 2),
                               range<float, full>(out.data(), 2), {});
  work.wait({});
  CHECK(out == in);
}

TEST_CASE("calls are done in the order in which they were made") {
  const auto right = run_threads(3, [](threads_communicator& comm) {
    delaying delay(comm, slow);
    std::vector<double> values(20, 1.0);
    std::vector<decltype(delay)::work> works;
    for (double& value : values) works.push_back(start_sum(delay, value));
    works.back().wait({});  // the last: all others are done as well
    bool all = true;
    for (const double value : values) all = all && value == 3.0;
    return all;
  });
  CHECK(right == std::vector<bool>(3, true));
}

TEST_CASE("more calls than the ring holds are started one after the other") {
  const auto right = run_threads(2, [](threads_communicator& comm) {
    delaying delay(comm, {.max_delay = std::chrono::microseconds(10), .seed = 5});
    std::vector<double> values(3 * detail::worker_queue::capacity, 1.0);
    std::vector<decltype(delay)::work> works;
    for (double& value : values) works.push_back(start_sum(delay, value));
    for (auto& work : works) work.wait({});
    return values == std::vector<double>(values.size(), 2.0);
  });
  CHECK(right == std::vector<bool>{true, true});
}

TEST_CASE("an error surfaces in wait, and from then on in every call") {
  self_communicator self;
  faulty fault(self);
  fault.arm({.kind = fault_kind::throw_before, .call = 1});
  delaying delay(fault, slow);
  double value = 1;
  auto good = start_sum(delay, value);
  auto bad = start_sum(delay, value);
  auto after = start_sum(delay, value);
  CHECK_NOTHROW(good.wait({}));
  CHECK_THROWS_AS(bad.wait({}), injected_fault);
  CHECK_NOTHROW(bad.wait({}));  // said once by this handle
  CHECK_THROWS_AS(after.wait({}), injected_fault);
  CHECK_THROWS_AS(start_sum(delay, value), injected_fault);
}

TEST_CASE("an error that a dropped handle found is thrown by the next call") {
  self_communicator self;
  faulty fault(self);
  fault.arm({.kind = fault_kind::throw_before});
  delaying delay(fault, slow);
  double value = 1;
  { auto dropped = start_sum(delay, value); }
  CHECK_THROWS_AS(start_sum(delay, value), injected_fault);
}

TEST_CASE("a call returns while it is being delayed, and an abort ends the delay") {
  self_communicator self;
  delaying delay(self, {.max_delay = std::chrono::hours(2), .seed = 1});
  double value = 1;
  auto work = start_sum(delay, value);
  delay.abort("stop");
  const rank_error error = error_of([&] { work.wait({}); });
  CHECK(error.kind == outcome::aborted);
  CHECK(error.says("stop"));
}

TEST_CASE("a delayed communicator can be switched to pass calls straight through, and back") {
  const auto sums = run_threads(2, [](threads_communicator& comm) {
    delaying delay(comm);
    double straight = 1;
    start_sum(delay, straight);  // done at once: the handle need not be kept
    delay.configure(slow);
    double later = straight;
    auto work = start_sum(delay, later);
    delay.configure({});  // waits for what was started
    const double seen = later;
    start_sum(delay, later).wait({});
    return std::array<double, 3>{straight, seen, later};
  });
  CHECK(sums[0] == std::array<double, 3>{2, 4, 8});
}

TEST_CASE("ranks draw different delays, and the same ones again for the same seed") {
  // Results do not depend on delays; this only runs many seeds through the same schedule.
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const auto sums = run_threads(3, [&](threads_communicator& comm) {
      delaying delay(comm, {.max_delay = std::chrono::microseconds(300), .seed = seed});
      std::array<std::vector<float>, 2> buffers{std::vector<float>(6), std::vector<float>(6)};
      std::array<std::array<float, 2>, 2> out{};
      std::array<decltype(delay)::work, 2> works;
      float total = 0;
      for (int i = 0; i < 40; ++i) {
        const auto slot = static_cast<std::size_t>(i % 2);
        works[slot].wait({});  // only now the buffer may be written again
        total += out[slot][0];
        for (float& x : buffers[slot]) x = static_cast<float>(i + comm.rank());
        works[slot] = delay.reduce_scatter(range<const float, partial>(buffers[slot].data(), 6),
                                           range<float, shard>(out[slot].data(), 2), {}, {});
      }
      for (std::size_t slot : {0U, 1U}) {
        works[slot].wait({});
        total += out[slot][0];
      }
      return total;
    });
    INFO("seed " << seed);
    CHECK(sums == std::vector<float>(3, 40 * 39 / 2 * 3 + 40 * 3));
  }
}
