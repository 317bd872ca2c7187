// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <zero/rendezvous/memory_store.hpp>
#include <zero/rendezvous/store.hpp>

#include "unit/rendezvous/store_contract.hpp"

using namespace zero;
using namespace zero::test;

TEST_CASE("a memory store keeps the contract of a store") {
  memory_store store;
  CHECK(check_one_rank(store, "one") == std::vector<std::string>{});
  prefixed_store inner(store, "a prefix");
  prefixed_store innermost(inner, "and another");
  const std::string key = "key";
  innermost.set(key, "value");
  CHECK(store.get("a prefix/and another/key", far()) == "value");
  CHECK(store.place() == innermost.place());
}

TEST_CASE("a store of any type keeps the contract and is shared by its copies") {
  any_store store = any_store::make<memory_store>();
  any_store copy = store;
  CHECK(check_one_rank(store, "one") == std::vector<std::string>{});
  store.set("shared", "yes");
  CHECK(copy.get("shared", far()) == "yes");
}

TEST_CASE("ranks that are threads meet in a memory store") {
  for (const int size : {1, 2, 3, 4, 8}) {
    CAPTURE(size);
    memory_store store;
    CHECK(failures_of(on_ranks(size, [&](int rank) {
            memory_store own = store;
            check_between_ranks(own, rank, size);
          })) == std::vector<std::string>{});
  }
}

TEST_CASE("R12 a barrier says which ranks are missing") {
  memory_store store;
  const auto results = on_ranks(5, [&](int rank) {
    if (rank == 2 || rank == 4) return;
    store_barrier(store, "start", rank, 5, deadline_in(150ms));
  });
  for (const std::size_t rank : {0U, 1U, 3U}) {
    CAPTURE(rank, results[rank].text);
    CHECK(results[rank].kind == store_outcome::timeout);
    CHECK(results[rank].says("2 of 5 ranks are missing"));
    CHECK(results[rank].says(": 2, 4;"));
  }
}

TEST_CASE("R12 a barrier without rank 0 names rank 0") {
  memory_store store;
  const auto result = result_of([&] { store_barrier(store, "start", 1, 2, soon()); });
  CHECK(result.kind == store_outcome::timeout);
  CHECK(result.says("1 of 2 ranks are missing at this barrier: 0;"));
}

TEST_CASE("a barrier refuses a rank that does not exist") {
  memory_store store;
  for (const int rank : {-1, 2}) {
    CHECK(result_of([&] { store_barrier(store, "b", rank, 2, soon()); }).kind ==
          store_outcome::usage);
  }
}

TEST_CASE("waiting for keys names those that did not come") {
  memory_store store;
  store.set("there", "");
  std::vector<std::string> keys{"there"};
  wait_for_keys(store, keys, soon());
  for (int i = 0; i < 10; ++i) keys.push_back("k" + std::to_string(i));
  const auto result = result_of([&] { wait_for_keys(store, keys, soon()); });
  CHECK(result.kind == store_outcome::timeout);
  CHECK(result.says("10 of 11 keys are missing: k0, k1, k2, k3, k4, k5, k6, k7 and 2 more"));
}

TEST_CASE("a deadline that is too far away never comes") {
  CHECK(deadline_in(std::chrono::hours(std::numeric_limits<int>::max())) == store_deadline::max());
  CHECK(deadline_in(std::chrono::nanoseconds::max()) == store_deadline::max());
  const auto before = std::chrono::steady_clock::now();
  const auto in_an_hour = deadline_in(1h);
  CHECK(in_an_hour >= before + 1h);
  CHECK(in_an_hour <= std::chrono::steady_clock::now() + 1h);
  CHECK(deadline_in(-1s) < std::chrono::steady_clock::now());

  memory_store store;
  std::thread other([&] {
    std::this_thread::sleep_for(10ms);
    store.set("key", "value");
  });
  CHECK(store.get("key", store_deadline::max()) == "value");
  other.join();
}
