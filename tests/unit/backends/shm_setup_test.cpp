// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/shm.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "support/rank_runner.hpp"

using namespace zero;
using zero::test::outcome;
using zero::test::rank_error;

namespace {

using change = std::function<void(detail::setup_offer&)>;

/// Hands out another offer than rank 0 made: what a rank sees that cannot share memory.
class changing_store {
 public:
  changing_store(memory_store store, change change_offer)
      : store_(std::move(store)), change_offer_(std::move(change_offer)) {}

  void set(std::string_view key, std::string_view bytes) { store_.set(key, bytes); }
  std::string get(std::string_view key, store_deadline deadline) {
    std::string bytes = store_.get(key, deadline);
    if (!key.ends_with("/offer")) return bytes;
    detail::setup_offer offer = detail::setup_offer::decode(bytes);
    change_offer_(offer);
    return offer.encode();
  }
  bool contains(std::string_view key) { return store_.contains(key); }
  bool remove(std::string_view key) { return store_.remove(key); }
  std::string place() const { return store_.place(); }

 private:
  memory_store store_;
  change change_offer_;
};

const change nothing = [](detail::setup_offer&) {};

struct obstacle {
  const char* text;
  change change_offer;
};

/// What rank 2 of three may find, and what everybody is told then.
std::vector<obstacle> obstacles() {
  return {
      {"rank 2 runs on another host than rank 0",
       [](detail::setup_offer& offer) { offer.host.boot_id.assign("another boot"); }},
      {"rank 2 runs in another pid namespace",
       [](detail::setup_offer& offer) { ++offer.host.pid_namespace; }},
      {"cannot open /proc/",
       [](detail::setup_offer& offer) { offer.segment.descriptor = 999'999; }},
      {"does not carry the nonce", [](detail::setup_offer& offer) { ++offer.segment.nonce[1]; }},
      {"is not the segment that was offered",
       [](detail::setup_offer& offer) { offer.segment.bytes += 4096; }},
  };
}

store_deadline soon() {
  return deadline_in(std::chrono::seconds(20));
}

}  // namespace

TEST_CASE("ranks that find shared memory agree that they can use it") {
  for (const int size : {1, 2, 5}) {
    memory_store store;
    const auto answers = run_threads(size, [&](threads_communicator& thread) {
      // One after the other in one store.
      const bool first = shm_host_is_shared(store, thread.rank(), size, soon());
      return std::pair(first, shm_host_is_shared(store, thread.rank(), size, soon()));
    });
    for (const auto& [first, second] : answers) {
      CHECK(first);
      CHECK(second);
    }
  }
}

TEST_CASE("one rank that cannot share memory makes the answer no for all") {
  for (const obstacle& found : obstacles()) {
    memory_store shared;
    const auto answers = run_threads(3, [&](threads_communicator& thread) {
      changing_store store(shared, thread.rank() == 2 ? found.change_offer : nothing);
      return shm_host_is_shared(store, thread.rank(), 3, soon());
    });
    INFO(found.text);
    CHECK(answers == std::vector<bool>(3, false));
  }
}

TEST_CASE("a rank that does not answer whether it can share memory is an error, not a no") {
  memory_store store;
  const auto answer = [&](int rank) {
    return test::error_of(
        [&] { shm_host_is_shared(store, rank, 2, deadline_in(std::chrono::milliseconds(20))); });
  };
  for (const int rank : {1, 0}) {
    const rank_error error = answer(rank);
    INFO(error.text);
    CHECK(error.kind == outcome::error);
    CHECK(error.says("no rank has set it"));
  }
}

TEST_CASE("all ranks learn which rank cannot share memory, and why") {
  for (const obstacle& found : obstacles()) {
    memory_store shared;
    const auto errors = test::outcomes(3, test::long_timeout, [&](threads_communicator& thread) {
      changing_store store(shared, thread.rank() == 2 ? found.change_offer : nothing);
      shm_communicator(store, thread.rank(), 3);
    });
    for (int rank = 0; rank < 3; ++rank) {
      const rank_error& error = errors[static_cast<std::size_t>(rank)];
      INFO("rank " << rank << ": " << error.text);
      CHECK(error.kind == outcome::communicator);
      CHECK(error.says(found.text));
      CHECK(error.where.rank == rank);
      CHECK(error.where.peer == 2);
    }
  }
}

TEST_CASE("what is no offer of this version is refused") {
  memory_store store;
  store.set("shm/offer", "host 10.0.0.1 port 80");
  const rank_error error = test::error_of([&] { shm_communicator(store, 1, 2); });
  INFO(error.text);
  CHECK(error.says("another version"));
}

TEST_CASE("the memory of a segment can neither shrink nor grow") {
  const detail::shared_segment segment = detail::shared_segment::create(8192);
  const auto descriptor = static_cast<int>(segment.offer().descriptor);
  CHECK(::ftruncate(descriptor, 4096) != 0);
  CHECK(::ftruncate(descriptor, 16384) != 0);
  CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a segment that another process has closed is not opened") {
  detail::shared_segment segment = detail::shared_segment::create(4096);
  const detail::segment_offer offer = segment.offer();
  CHECK(detail::shared_segment::open(offer).bytes() == 4096);
  segment.close_descriptor();
  const rank_error error = test::error_of([&] { detail::shared_segment::open(offer); });
  INFO(error.text);
  CHECK(error.kind == outcome::error);
  CHECK(error.says("gloo_communicator"));
}
