// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/backends/delaying.hpp>
#include <zero/backends/faulty.hpp>
#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>

#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;

namespace {

template <class C>
double sum_over_ranks(C& comm, double value) {
  comm.all_reduce(range<double, full>(&value, 1), {}).wait({});
  return value;
}

}  // namespace

TEST_CASE("without a plan everything passes") {
  const auto sums = run_threads(2, [](threads_communicator& comm) {
    faulty fault(comm);
    const double sum = sum_over_ranks(fault, 1);
    return fault.fired() ? -1 : sum;
  });
  CHECK(sums == std::vector<double>{2, 2});
}

TEST_CASE("the k-th call of the chosen kind fails, before it or after it") {
  for (const bool before : {true, false}) {
    const auto errors = outcomes(2, long_timeout, [&](threads_communicator& comm) {
      faulty fault(comm);
      if (comm.rank() == 1) {
        fault.arm({.kind = before ? fault_kind::throw_before : fault_kind::throw_after,
                   .call = 2,
                   .operation = collective::all_reduce});
      }
      std::uint64_t word = 1;
      for (int i = 0; i < 3; ++i) {
        fault.broadcast(range<std::uint64_t, full>(&word, 1), 0, {}).wait({});
        sum_over_ranks(fault, 1);
      }
      // After the fault: rank 0 gets here only if rank 1 took part in the last sum.
      sum_over_ranks(fault, 1);
    });
    INFO(errors[1].text);
    CHECK(errors[1].kind == outcome::communicator);
    CHECK(errors[1].says(before ? "injected fault before call 2" : "injected fault after call 2"));
    INFO(errors[0].text);
    CHECK(errors[0].kind == outcome::aborted);
    CHECK(errors[0].says("injected fault"));
    CHECK(errors[0].where.sequence == (before ? 5U : 6U));
  }
}

TEST_CASE("one flipped bit of one rank's result, and only there") {
  for (const bool delayed : {false, true}) {
    const auto results = run_threads(2, [&](threads_communicator& comm) {
      delaying delay(comm);
      if (delayed) delay.configure({.max_delay = std::chrono::microseconds(100), .seed = 3});
      faulty fault(delay);
      if (comm.rank() == 0) fault.arm({.kind = fault_kind::flip_bit, .call = 1, .bit = 32 + 31});
      std::array<float, 4> values{1, 2, 3, 4};
      std::array<float, 2> out{};
      for (int i = 0; i < 3; ++i) {
        fault.reduce_scatter(range<const float, partial>(values.data(), 4),
                             range<float, shard>(out.data(), 2), {}, {})
            .wait({});
        if (i == 1) break;
      }
      return out;
    });
    CHECK(results[0] == std::array<float, 2>{2, -4});  // bit 31 of the second float: its sign
    CHECK(results[1] == std::array<float, 2>{6, 8});
  }
}

TEST_CASE("fault_40 a rank with a wrong count is found by all") {
  const auto errors = outcomes(3, long_timeout, [](threads_communicator& comm) {
    faulty fault(comm);
    if (comm.rank() == 2) fault.arm({.kind = fault_kind::wrong_count, .call = 1});
    for (int i = 0; i < 3; ++i) sum_over_ranks(fault, 1);
  });
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::mismatch);
    CHECK(error.says("all_reduce #1 of 0 x float64"));
    CHECK(error.says("all_reduce #1 of 1 x float64"));
  }
}

TEST_CASE("a plan can be taken back and replaced") {
  self_communicator self;
  faulty fault(self);
  fault.arm({.kind = fault_kind::throw_before});
  CHECK_THROWS_AS(sum_over_ranks(fault, 1), injected_fault);
  CHECK(fault.fired());
  CHECK_NOTHROW(sum_over_ranks(fault, 1));  // once
  fault.arm({.kind = fault_kind::throw_before, .call = 1});
  CHECK_NOTHROW(sum_over_ranks(fault, 1));
  fault.disarm();
  CHECK_NOTHROW(sum_over_ranks(fault, 1));
  CHECK_FALSE(fault.fired());
}
