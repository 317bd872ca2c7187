// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/delaying.hpp>
#include <zero/backends/metered.hpp>
#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>

#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;

namespace {

/// The least that can be erased: no operation but the sums of doubles.
class sums_only {
 public:
  using memory_space = host_space;
  using queue = host_queue;
  using work = detail::completed_work;
  static constexpr summation sums = summation::rank_tree;
  static constexpr std::string_view backend_name() noexcept { return "sums_only"; }
  int rank() const noexcept { return 0; }
  int size() const noexcept { return 1; }
  void abort(std::string_view) noexcept {}
  bool claim() noexcept { return true; }
  void unclaim() noexcept {}
  work all_reduce(range<double, full>, queue) { return {}; }
};

}  // namespace

TEST_CASE("the backend can be chosen at run time") {
  for (const bool one_rank : {true, false}) {
    const auto names = run_threads(2, [&](threads_communicator& comm) {
      any_communicator any = one_rank ? any_communicator(std::make_unique<self_communicator>())
                                      : any_communicator(comm);
      double value = 1;
      any.all_reduce(range<double, full>(&value, 1)).wait({});
      return std::string(any.inner_name()) + " " + std::to_string(any.size()) + " " +
             std::to_string(value);
    });
    CHECK(names[1] == (one_rank ? "self 1 1.000000" : "threads 2 2.000000"));
  }
}

TEST_CASE("ranges pass with counts and padding as they are") {
  const auto counters = run_threads(3, [](threads_communicator& comm) {
    metered meter(comm);
    any_communicator any(meter);
    std::vector<float16> values(12);
    std::vector<float> sums(4);
    any.reduce_scatter(range<const float16, partial>(values.data(), 12, 5),
                       range<float, shard>(sums.data(), 4))
        .wait({});
    any.all_gather(range<const float, shard>(sums.data(), 1),
                   range<float, full>(sums.data() + 1, 3))
        .wait({});
    any.broadcast(range<float16, full>(values.data(), 12, 1), 0).wait({});
    return meter.counters();
  });
  CHECK(counters[0][collective::reduce_scatter] == collective_counters{1, 7, 5, 2 * 4 * 2});
  CHECK(counters[1][collective::all_gather] == collective_counters{1, 3, 0, 2 * 1 * 4});
  CHECK(counters[0][collective::broadcast] == collective_counters{1, 11, 1, 2 * 12 * 2});
}

TEST_CASE("an asynchronous inner communicator stays asynchronous") {
  const auto right = run_threads(2, [](threads_communicator& comm) {
    delaying delay(comm, {.max_delay = std::chrono::milliseconds(1), .seed = 2});
    any_communicator any(delay);
    std::vector<double> values(10, 1.0);
    std::vector<any_communicator::work> works;
    for (double& value : values) works.push_back(any.all_reduce(range<double, full>(&value, 1)));
    any_communicator::work moved = std::move(works[3]);
    moved.wait({});
    works.clear();  // dropped handles wait
    return values == std::vector<double>(10, 2.0);
  });
  CHECK(right == std::vector<bool>{true, true});
}

TEST_CASE("an operation that the inner type cannot do is refused by name") {
  sums_only inner;
  any_communicator any(inner);
  float value = 1;
  const rank_error error = error_of([&] { any.broadcast(range<float, full>(&value, 1), 0); });
  CHECK(error.kind == outcome::usage);
  CHECK(error.text == "sums_only rank 0, broadcast: this backend cannot do it for float32");
  CHECK(error_of([&] { any.split(0); }).says("split"));
  CHECK(error_of([&] {
          any.reduce_scatter(range<const float, partial>(&value, 1),
                             range<float, shard>(&value, 1));
        }).says("reduce_scatter"));
  CHECK(error_of([&] {
          any.all_gather(range<const float, shard>(&value, 1), range<float, full>(&value, 1));
        }).says("all_gather"));
}

TEST_CASE("claims and parts pass through the type-erased communicator") {
  self_communicator self;
  metered meter(self);
  any_communicator any(meter);
  any_communicator part = any.split(3);
  CHECK(part.size() == 1);
  CHECK(any.claim());
  CHECK_FALSE(self.claim());
  any.unclaim();
  CHECK(self.claim());
}
