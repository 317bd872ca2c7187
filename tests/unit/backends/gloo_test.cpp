// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 120
// links: zero::gloo
#include <signal.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/backends/gloo.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "support/leftovers.hpp"
#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;
using namespace std::chrono_literals;

namespace {

/// Runs function(communicator) on threads, each with a communicator that meets in `store`.
template <class Function>
std::vector<rank_error> gloo_outcomes(memory_store store, int size, const gloo_options& options,
                                      Function function) {
  return outcomes(size, long_timeout, [&](threads_communicator& thread) {
    gloo_communicator communicator(store, thread.rank(), size, options);
    try {
      function(communicator);
    } catch (const std::exception& error) {
      communicator.abort(error.what());
      throw;
    }
  });
}
template <class Function>
std::vector<rank_error> gloo_outcomes(int size, const gloo_options& options, Function function) {
  return gloo_outcomes(memory_store(), size, options, function);
}

void check_all_returned(const std::vector<rank_error>& errors) {
  for (const rank_error& error : errors) CHECK(error.text == "");
}

void all_reduce_once(gloo_communicator& comm) {
  double value = 1;
  comm.all_reduce(range<double, full>(&value, 1)).wait({});
  if (value != comm.size()) throw std::runtime_error("the sum is " + std::to_string(value));
}

template <class T>
void gather(gloo_communicator& comm, std::vector<T>& all) {
  const auto count = all.size() / static_cast<std::size_t>(comm.size());
  T* const own = all.data() + count * static_cast<std::size_t>(comm.rank());
  comm.all_gather(range<const T, shard>(own, count), range<T, full>(all.data(), all.size()))
      .wait({});
}

/// A store that a world of one rank must not need.
struct no_store {
  void set(std::string_view, std::string_view) { throw std::logic_error("set"); }
  std::string get(std::string_view, store_deadline) { throw std::logic_error("get"); }
  bool contains(std::string_view) { throw std::logic_error("contains"); }
  bool remove(std::string_view) { throw std::logic_error("remove"); }
  std::string place() const { return "nowhere"; }
};

}  // namespace

TEST_CASE("options that cannot be meant are refused with their values") {
  const auto refuses = [](const gloo_options& options, const std::string& text) {
    memory_store store;
    const auto error = error_of([&] { gloo_communicator(store, 0, 1, options); });
    CHECK(error.kind == outcome::usage);
    CHECK_THAT(error.text, Catch::Contains(text));
  };
  refuses({.timeout = 0s}, "timeout of 0 ns");
  refuses({.setup_timeout = -1ns}, "setup_timeout of -1 ns");
  refuses({.interface = "eth0", .address = "10.0.0.1"}, "eth0");
  refuses({.segment_bytes = 0}, "segment_bytes is 0");
  refuses({.segment_bytes = (std::uint64_t{1} << 30U) + 1}, "segment_bytes is 1073741825");
  refuses({.depth = 0}, "depth is 0");
  memory_store store;
  CHECK(error_of([&] { gloo_communicator(store, 2, 2); }).says("rank 2 of a world of 2"));
  CHECK(error_of([&] { gloo_communicator(store, 0, 0); }).kind == outcome::usage);
}

TEST_CASE("a world of one rank needs no store and no network") {
  const leftovers before;
  no_store store;
  gloo_communicator alone(store, 0, 1);
  all_reduce_once(alone);
  gloo_communicator part = alone.split(3);
  all_reduce_once(part);
  CHECK(alone.scratch_bytes() == 0);
  CHECK(before.found(0, 0ms) == "");
}

TEST_CASE("a rank that leaves or fails right after it was connected does not confuse the others") {
  for (int run = 0; run < 20; ++run) {
    const auto errors = gloo_outcomes(3, {}, [&](gloo_communicator& comm) {
      if (comm.rank() == 1 && run % 2 == 0) throw std::runtime_error("changed its mind");
      if (comm.rank() == 1) return;
      all_reduce_once(comm);
    });
    for (const int rank : {0, 2}) {
      const rank_error& error = errors[static_cast<std::size_t>(rank)];
      INFO("run " << run << ", rank " << rank << ": " << error.text);
      CHECK(error.kind == outcome::aborted);
      CHECK(error.says(run % 2 == 0 ? "changed its mind" : "rank 1 left"));
      CHECK(error.where.sequence == 0);
    }
  }
}

TEST_CASE("scratch is (N-1) x depth x segment and headers, segments a multiple of 64") {
  check_all_returned(
      gloo_outcomes(3, {.segment_bytes = 1000, .depth = 4}, [](gloo_communicator& comm) {
        const std::uint64_t headers = 9 * sizeof(zero::detail::gloo_call_header);
        const std::uint64_t bytes = comm.scratch_bytes();
        if (bytes != 2 * 4 * 1024 + headers) throw std::runtime_error(std::to_string(bytes));
      }));
}

TEST_CASE("an interface that does not exist is named") {
  const auto errors =
      gloo_outcomes(2, {.setup_timeout = 5s, .interface = "nonesuch0"}, all_reduce_once);
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::error);
    CHECK(error.says("nonesuch0"));
    CHECK(error.says("lo 127.0.0.1"));
  }
}

TEST_CASE("ranks connect through the interface or the address that was chosen") {
  check_all_returned(gloo_outcomes(2, {.interface = "lo"}, all_reduce_once));
  check_all_returned(gloo_outcomes(2, {.interface = "^eth,docker"}, all_reduce_once));
  check_all_returned(gloo_outcomes(2, {.address = "localhost"}, all_reduce_once));
  const auto errors = gloo_outcomes(2, {.setup_timeout = 5s, .address = "192.0.2.1"},
                                    all_reduce_once);  // of nobody, by RFC 5737
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::communicator);
    CHECK(error.says("192.0.2.1"));
    CHECK(error.where.operation == "connect");
  }
}

TEST_CASE("fault_43 Gloo: a rank that never comes is named by those that wait for it") {
  const auto errors = outcomes(3, long_timeout, [store = memory_store()](auto& thread) mutable {
    if (thread.rank() == 1) return;
    gloo_communicator(store, thread.rank(), 3, {.setup_timeout = 200ms});
  });
  for (const int rank : {0, 2}) {
    const rank_error& error = errors[static_cast<std::size_t>(rank)];
    INFO(error.text);
    CHECK(error.kind == outcome::timeout);
    CHECK(error.says("for rank(s) 1"));
    CHECK(error.says("memory store"));
    CHECK(error.where.peer == 1);
  }
}

TEST_CASE("fault_R12 Gloo: ranks of different worlds or options do not connect") {
  memory_store store;
  const auto errors = outcomes(2, long_timeout, [&](threads_communicator& thread) {
    gloo_options options{.setup_timeout = 1s};
    if (thread.rank() == 1) options.segment_bytes = 4096;
    gloo_communicator(store, thread.rank(), 2, options);
  });
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::mismatch);
    CHECK(error.says("segment_bytes " + std::to_string(gloo_options{}.segment_bytes)));
    CHECK(error.says("segment_bytes 4096"));
  }
  memory_store other;
  const auto sizes = outcomes(2, long_timeout, [&](threads_communicator& thread) {
    gloo_communicator(other, thread.rank(), 2 + thread.rank(), {.setup_timeout = 1s});
  });
  for (const rank_error& error : sizes) {
    INFO(error.text);
    CHECK(error.kind == outcome::mismatch);
    CHECK(error.says("size 2"));
    CHECK(error.says("size 3"));
  }
}

TEST_CASE("fault_44 Gloo: one store serves many communicators, one after the other and at once") {
  const leftovers before;
  memory_store store;
  check_all_returned(outcomes(3, long_timeout, [&](threads_communicator& thread) {
    for (int i = 0; i < 20; ++i) {
      gloo_communicator comm(store, thread.rank(), 3);
      all_reduce_once(comm);
    }
    gloo_communicator first(store, thread.rank(), 3);
    gloo_communicator second(store, thread.rank(), 3);
    for (int i = 0; i < 20; ++i) {
      all_reduce_once(first);
      all_reduce_once(second);
    }
  }));
  // Threads, sockets and epoll descriptors.
  CHECK(before.found(0, 2s) == "");
}

TEST_CASE("a message of another size is never taken for the one that is expected") {
  // Unchecked, the larger one would end the process and the smaller one leave stale elements.
  for (const int more : {8, -8}) {
    const gloo_options options{.timeout = 300ms, .checked_order = false};
    const auto errors = gloo_outcomes(2, options, [&](gloo_communicator& comm) {
      all_reduce_once(comm);
      const auto count = static_cast<std::size_t>(2000 + (comm.rank() == 1 ? more : 0));
      std::vector<float> all(count, 7.0F);
      gather(comm, all);
    });
    for (const rank_error& error : errors) {
      INFO(error.text);
      const bool is_typed = error.kind == outcome::timeout || error.kind == outcome::aborted;
      CHECK(is_typed);
      CHECK(error.where.operation == "all_gather");
      CHECK(error.where.sequence == 1);
    }
  }
}

TEST_CASE("a rank that leaves after its last collective disturbs nobody") {
  // Ranks end at different times: the last one is still receiving when the others are gone.
  for (int run = 0; run < 5; ++run) {
    check_all_returned(gloo_outcomes(4, {}, [&](gloo_communicator& comm) {
      std::vector<double> all(400'000, comm.rank());
      if (comm.rank() == run % 4) std::this_thread::sleep_for(20ms);
      gather(comm, all);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != static_cast<double>(i / 100'000)) throw std::runtime_error("wrong element");
      }
    }));
  }
}

TEST_CASE("F1 messages of 16 and 32 MiB may be overwritten as soon as the call returns") {
  for (const int size : {2, 3}) {
    const std::size_t count = std::size_t{1} << (size == 2 ? 23U : 22U);
    check_all_returned(gloo_outcomes(size, {}, [&](gloo_communicator& comm) {
      std::vector<float> in(count * static_cast<std::size_t>(size));
      std::vector<float> out(count);
      for (int i = 0; i < 3; ++i) {
        for (std::size_t k = 0; k < in.size(); ++k) {
          in[k] = static_cast<float>(comm.rank() + i + static_cast<int>(k % 1000));
        }
        comm.reduce_scatter(range<const float, partial>(in.data(), in.size()),
                            range<float, shard>(out.data(), count))
            .wait({});
        const std::size_t first = static_cast<std::size_t>(comm.rank()) * count;
        for (std::size_t k = 0; k < count; ++k) {
          const int sum = size * (i + static_cast<int>((first + k) % 1000)) + size * (size - 1) / 2;
          if (out[k] != static_cast<float>(sum)) throw std::runtime_error("wrong sum");
        }
      }
    }));
  }
}

TEST_CASE("a failed communicator is quiet") {
  const auto errors = gloo_outcomes(3, {.timeout = 100ms}, [](gloo_communicator& comm) {
    if (comm.rank() == 2) std::this_thread::sleep_for(600ms);
    std::vector<double> all(3'000'000);
    const rank_error error = error_of([&] { gather(comm, all); });
    if (error.kind == outcome::returned) throw std::runtime_error("no rank was late");
    // A receive that is forgotten while its connection is open keeps Gloo's thread busy.
    timespec begin{};
    timespec end{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    std::this_thread::sleep_for(300ms);
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    const double busy = static_cast<double>(end.tv_sec - begin.tv_sec) +
                        1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
    if (comm.rank() == 2 && busy > 0.15) throw std::runtime_error(std::to_string(busy) + " s");
  });
  check_all_returned(errors);
}

TEST_CASE("SIGPIPE is ignored unless the program handles it or says no") {
  const auto connect_with = [](const gloo_options& options) {
    check_all_returned(gloo_outcomes(2, options, all_reduce_once));
    struct sigaction now {};
    ::sigaction(SIGPIPE, nullptr, &now);
    return now.sa_handler;
  };
  struct sigaction original {};
  ::sigaction(SIGPIPE, nullptr, &original);
  ::signal(SIGPIPE, SIG_DFL);
  const bool is_left_alone = connect_with({.ignore_sigpipe = false}) == SIG_DFL;
  const bool is_ignored = connect_with({}) == SIG_IGN;
  const auto own_handler = +[](int) {};
  ::signal(SIGPIPE, own_handler);
  const bool is_kept = connect_with({}) == own_handler;
  ::sigaction(SIGPIPE, &original, nullptr);
  CHECK(is_left_alone);
  CHECK(is_ignored);
  CHECK(is_kept);
}

TEST_CASE("Gloo's waits in the store end at the library's deadline") {
  memory_store store;
  zero::detail::gloo_store_adapter adapter(any_store::make<memory_store>(store), "p",
                                           deadline_in(50ms));
  CHECK_THROWS_AS(adapter.get("missing"), rendezvous_timeout_error);
  CHECK_THROWS_AS(adapter.wait({"missing"}, 1h), rendezvous_timeout_error);
  adapter.set("key", {'a', '\0', 'b'});
  CHECK(store.get("p/key", {}) == std::string("a\0b", 3));
  CHECK(adapter.get("key") == std::vector<char>{'a', '\0', 'b'});

  int checks = 0;
  zero::detail::gloo_store_adapter checked(any_store::make<memory_store>(store), "p",
                                           deadline_in(20s), [&] {
                                             if (++checks == 3) throw zero::error("stop");
                                           });
  CHECK_THROWS_WITH(checked.get("missing"), "stop");
}

TEST_CASE("the ring sums shard r from rank r + 1 around to rank r, rounded at every step") {
  STATIC_REQUIRE(gloo_communicator::sums == summation::rank_tree);
  STATIC_REQUIRE(gloo_ring_communicator::sums == summation::unspecified);
  // Several blocks of segments, the last one not full; and a shard that rides in the headers.
  for (const std::size_t count : {std::size_t{1999}, std::size_t{5}}) {
    for (int size = 1; size <= 5; ++size) {
      const auto value = [](int rank, std::size_t index) {
        return bfloat16(1.0F / static_cast<float>(3 + rank * 7 + static_cast<int>(index % 50)));
      };
      memory_store store;
      check_all_returned(outcomes(size, long_timeout, [&](threads_communicator& thread) {
        const int rank = thread.rank();
        gloo_ring_communicator ring(store, rank, size, {.segment_bytes = 256, .depth = 2});
        std::vector<bfloat16> all(count * static_cast<std::size_t>(size));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(rank, i);
        std::vector<bfloat16> sum(count);
        for (int repeat = 0; repeat < 3; ++repeat) {
          ring.reduce_scatter(range<const bfloat16, partial>(all.data(), all.size()),
                              range<bfloat16, shard>(sum.data(), count))
              .wait({});
        }
        for (std::size_t i = 0; i < count && count > 128; ++i) {
          const std::size_t index = static_cast<std::size_t>(rank) * count + i;
          bfloat16 expected = value((rank + 1) % size, index);
          for (int step = 2; step <= size; ++step) {
            const float term = static_cast<float>(value((rank + step) % size, index));
            expected = bfloat16(static_cast<float>(expected) + term);
          }
          if (static_cast<float>(sum[i]) != static_cast<float>(expected)) {
            throw std::runtime_error("element " + std::to_string(i) + " of the sum is wrong");
          }
        }
        for (std::size_t i = 0; i < count; ++i) sum[i] = value(rank, i);
        ring.all_gather(range<const bfloat16, shard>(sum.data(), count),
                        range<bfloat16, full>(all.data(), all.size()))
            .wait({});
        for (std::size_t i = 0; i < all.size(); ++i) {
          const bfloat16 expected = value(static_cast<int>(i / count), i % count);
          if (static_cast<float>(all[i]) != static_cast<float>(expected)) {
            throw std::runtime_error("gathered element " + std::to_string(i) + " is wrong");
          }
        }
      }));
    }
  }
}
