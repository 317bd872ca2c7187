// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <zero/detail/worker_queue.hpp>

#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;
using zero::detail::worker_queue;

namespace {

/// Holds the worker until it is opened, at most ten seconds.
class gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

}  // namespace

TEST_CASE("operations of a queue run on another thread, in the order in which they were started") {
  worker_queue queue;
  queue.start();
  std::vector<int> seen;
  std::thread::id runner;
  for (int i = 0; i < 1000; ++i) {
    queue.push([&seen, &runner, i] {
      seen.push_back(i);
      runner = std::this_thread::get_id();
    });
  }
  queue.drain();
  REQUIRE(seen.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
  CHECK(runner != std::this_thread::get_id());
}

TEST_CASE("a start blocks while the ring is full, and no longer") {
  worker_queue queue;
  queue.start();
  gate closed;
  std::atomic<int> started{0};
  std::thread producer([&] {
    for (std::size_t i = 0; i < worker_queue::capacity + 1; ++i) {
      queue.push([&closed] { closed.pass(); });
      ++started;
    }
  });
  while (started < static_cast<int>(worker_queue::capacity)) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int before = started;
  closed.open();
  producer.join();
  queue.drain();
  CHECK(before == static_cast<int>(worker_queue::capacity));
  CHECK(started == static_cast<int>(worker_queue::capacity) + 1);
}

TEST_CASE("what an operation throws comes out of its wait, later waits and later starts") {
  worker_queue queue;
  queue.start();
  int runs = 0;
  const auto good = queue.push([&runs] { ++runs; });
  const auto bad = queue.push([] { throw std::domain_error("on fire"); });
  const auto behind = queue.push([&runs] { ++runs; });
  CHECK_NOTHROW(queue.wait(good));
  CHECK_THROWS_AS(queue.wait(bad), std::domain_error);
  CHECK_THROWS_AS(queue.wait(behind), std::domain_error);
  CHECK_NOTHROW(queue.wait(good));
  CHECK_THROWS_AS(queue.push([&runs] { ++runs; }), std::domain_error);
  CHECK_THROWS_AS(queue.run_if_idle([&runs] { ++runs; }), std::domain_error);
  CHECK(runs == 1);
}

TEST_CASE("an idle queue runs an operation at once on the calling thread") {
  worker_queue queue;
  queue.start();
  std::thread::id runner;
  CHECK(queue.run_if_idle([&] { runner = std::this_thread::get_id(); }));
  CHECK(runner == std::this_thread::get_id());
}

TEST_CASE("a queue with something in flight runs nothing out of order") {
  worker_queue queue;
  queue.start();
  gate closed;
  const auto first = queue.push([&closed] { closed.pass(); });
  bool ran = false;
  CHECK_FALSE(queue.run_if_idle([&] { ran = true; }));
  CHECK_FALSE(ran);
  closed.open();
  queue.wait(first);
  CHECK(queue.run_if_idle([&] { ran = true; }));
  CHECK(ran);
}

TEST_CASE("what an operation throws on the calling thread ends the queue as well") {
  worker_queue queue;
  queue.start();
  const auto good = queue.push([] {});
  queue.drain();
  CHECK_THROWS_AS(queue.run_if_idle([] { throw std::domain_error("on fire"); }), std::domain_error);
  CHECK_NOTHROW(queue.wait(good));
  CHECK_THROWS_AS(queue.push([] {}), std::domain_error);
}

TEST_CASE("a queue that is destroyed has run everything, and skips the delays") {
  int runs = 0;
  {
    worker_queue queue;
    queue.start();
    for (int i = 0; i < 10; ++i) queue.push([&runs] { ++runs; }, std::chrono::hours(1));
  }
  CHECK(runs == 10);
}

TEST_CASE("delays end when the queue hurries") {
  worker_queue queue;
  queue.start();
  int runs = 0;
  const auto last = queue.push([&runs] { ++runs; }, std::chrono::hours(1));
  CHECK_FALSE(queue.is_idle());
  queue.hurry();
  queue.wait(last);
  CHECK(runs == 1);
  CHECK(queue.is_idle());
}
