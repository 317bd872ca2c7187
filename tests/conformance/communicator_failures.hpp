// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/communicator.hpp>
#include <zero/error.hpp>
#include <zero/range.hpp>

#include "support/rank_runner.hpp"

// How every communicator with more than one rank has to fail: by a typed error on every rank, at
// once or at the deadline, and never by hanging (a hang ends the test by its ctest timeout).

namespace zero::test {

template <class C>
void all_reduce_once(C& comm) {
  double value = 1;
  comm.all_reduce(range<double, full>(&value, 1), {}).wait({});
}

template <class Backend, class Function>
std::vector<rank_error> failures(int size, threads_options options, Function function) {
  const auto result = Backend::run(size, options, function);
  std::vector<rank_error> errors;
  for (int rank = 0; rank < size; ++rank) errors.push_back(describe(result.error(rank)));
  return errors;
}

/// R3: one rank throws; the others leave with its reason, and it is named as the cause.
template <class Backend>
void check_throwing_rank() {
  for (const int size : {1, 2, 4}) {
    for (int victim = 0; victim < size; victim += size - 1 > 0 ? size - 1 : 1) {
      for (const int calls_before : {0, 3}) {
        const auto result = Backend::run(size, long_timeout, [&](auto& comm) {
          for (int i = 0; i < calls_before; ++i) all_reduce_once(comm);
          if (comm.rank() == victim) throw std::domain_error("gradients are on fire");
          all_reduce_once(comm);
        });
        INFO("N = " << size << ", victim " << victim << ", after " << calls_before);
        CHECK(result.failed_rank() == victim);
        CHECK_THROWS_AS(result.rethrow(), std::domain_error);
        for (int rank = 0; rank < size; ++rank) {
          if (rank == victim) continue;
          const rank_error error = describe(result.error(rank));
          INFO("rank " << rank << ": " << error.text);
          CHECK(error.kind == outcome::aborted);
          CHECK(error.says("gradients are on fire"));
          CHECK(error.where.rank == rank);
          CHECK(error.where.peer == victim);
          CHECK(error.where.operation == "all_reduce");
          CHECK(error.where.sequence == static_cast<std::uint64_t>(calls_before));
        }
      }
    }
  }
}

/// Row 41: one rank has fewer batches than the others.
template <class Backend>
void check_leaving_rank() {
  for (const int size : {2, 3}) {
    const auto errors = failures<Backend>(size, long_timeout, [](auto& comm) {
      const int steps = comm.rank() == 1 ? 2 : 3;
      for (int i = 0; i < steps; ++i) all_reduce_once(comm);
    });
    for (int rank = 0; rank < size; ++rank) {
      const rank_error& error = errors[static_cast<std::size_t>(rank)];
      INFO("N = " << size << ", rank " << rank << ": " << error.text);
      if (rank == 1) {
        CHECK(error.kind == outcome::returned);
        continue;
      }
      CHECK(error.kind == outcome::aborted);
      CHECK(error.says(" left"));
      CHECK(error.where.sequence == 2);
    }
    CHECK(errors[0].says("rank 1 left"));
  }
}

/// Row 43: a peer never comes. Every rank that waits says who is missing, where, and for how long.
template <class Backend>
void check_timeout() {
  for (const int size : {2, 4}) {
    const int late = size - 1;
    const auto errors = failures<Backend>(size, short_timeout, [&](auto& comm) {
      all_reduce_once(comm);
      if (comm.rank() == late) std::this_thread::sleep_for(4 * short_timeout.timeout);
      all_reduce_once(comm);
    });
    for (int rank = 0; rank < size; ++rank) {
      const rank_error& error = errors[static_cast<std::size_t>(rank)];
      INFO("N = " << size << ", rank " << rank << ": " << error.text);
      CHECK(error.kind == (rank == late ? outcome::aborted : outcome::timeout));
      CHECK(error.says("for rank(s) " + std::to_string(late)));
      CHECK(error.where.backend == "threads");
      CHECK(error.where.rank == rank);
      CHECK(error.where.operation == "all_reduce");
      CHECK(error.where.sequence == 1);
      if (rank == late) continue;
      CHECK(error.where.peer == late);
      CHECK(error.where.elapsed_seconds > 0.1);
    }
  }
}

/// Row 40: ranks take different branches. `diverge(comm, is_odd_one)` makes one call.
template <class Backend, class Diverge>
void check_mismatch(const std::string& first, const std::string& second, Diverge diverge) {
  for (const int size : {2, 4}) {
    for (const int odd_one : {0, size - 1}) {
      const auto errors = failures<Backend>(size, long_timeout, [&](auto& comm) {
        all_reduce_once(comm);
        std::vector<float> buffer(static_cast<std::size_t>(comm.size()) * 8, 1.0F);
        diverge(comm, comm.rank() == odd_one, buffer.data());
      });
      for (int rank = 0; rank < size; ++rank) {
        const rank_error& error = errors[static_cast<std::size_t>(rank)];
        INFO("N = " << size << ", odd one " << odd_one << ", rank " << rank << ": " << error.text);
        CHECK(error.kind == outcome::mismatch);
        CHECK(error.says(first));
        CHECK(error.says(second));
        CHECK(error.says("rank " + std::to_string(odd_one)));
        CHECK(error.where.sequence == 1);
      }
    }
  }
}

template <class C>
void scatter(C& comm, float* data, std::uint64_t count, float scale) {
  const auto n = static_cast<std::uint64_t>(comm.size());
  comm.reduce_scatter(range<const float, partial>(data, n * count),
                      range<float, shard>(data + n * count, count), {.scale = scale}, {})
      .wait({});
}

template <class Backend>
void check_mismatches() {
  SECTION("operation") {
    check_mismatch<Backend>("all_reduce #1", "broadcast #1", [](auto& comm, bool odd, float* data) {
      if (odd) return comm.broadcast(range<float, full>(data, 4), 0, {}).wait({});
      all_reduce_once(comm);
    });
  }
  SECTION("type") {
    check_mismatch<Backend>("4 x float32", "4 x uint16", [](auto& comm, bool odd, float* data) {
      std::vector<std::uint16_t> other(4);
      if (odd) return comm.broadcast(range<std::uint16_t, full>(other.data(), 4), 0, {}).wait({});
      comm.broadcast(range<float, full>(data, 4), 0, {}).wait({});
    });
  }
  SECTION("output type") {
    check_mismatch<Backend>("bfloat16 into float32", "bfloat16", [](auto& comm, bool odd, float*) {
      std::vector<bfloat16> in(static_cast<std::size_t>(comm.size()) * 2);
      std::vector<bfloat16> rounded(2);
      std::vector<float> unrounded(2);
      const range<const bfloat16, partial> input(in.data(), in.size());
      if (odd) {
        return comm.reduce_scatter(input, range<float, shard>(unrounded.data(), 2), {}, {})
            .wait({});
      }
      comm.reduce_scatter(input, range<bfloat16, shard>(rounded.data(), 2), {}, {}).wait({});
    });
  }
  SECTION("count") {
    check_mismatch<Backend>("3 x float32", "4 x float32", [](auto& comm, bool odd, float* data) {
      comm.broadcast(range<float, full>(data, odd ? 3 : 4), 0, {}).wait({});
    });
  }
  SECTION("root") {
    check_mismatch<Backend>("root 0", "root 1", [](auto& comm, bool odd, float* data) {
      comm.broadcast(range<float, full>(data, 4), odd ? 1 : 0, {}).wait({});
    });
  }
  SECTION("scale") {
    check_mismatch<Backend>("reduce_scatter", "x 0.5", [](auto& comm, bool odd, float* data) {
      scatter(comm, data, 2, odd ? 0.5F : 1.0F);
    });
  }
  SECTION("one extra gather") {
    check_mismatch<Backend>("all_gather #1", "reduce_scatter #1", [](auto& comm, bool odd,
                                                                     float* data) {
      const auto n = static_cast<std::uint64_t>(comm.size());
      if (odd) {
        comm.all_gather(range<const float, shard>(data + 2 * n, 2), range<float, full>(data, 2 * n),
                        {})
            .wait({});
      }
      scatter(comm, data, 2, 1.0F);
    });
  }
}

/// abort() from a thread that is no rank wakes the ranks that wait, and can be called again.
template <class Backend>
void check_abort() {
  for (const int size : {2, 3}) {
    const auto errors = failures<Backend>(size, long_timeout, [](auto& comm) {
      if (comm.rank() != 0) return all_reduce_once(comm);  // waits for rank 0 until the abort
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        comm.abort("the operator pressed stop");
        comm.abort("again, with another reason");
      });
      other.join();
      comm.abort("again");
      all_reduce_once(comm);
    });
    for (const rank_error& error : errors) {
      INFO("N = " << size << ": " << error.text);
      CHECK(error.kind == outcome::aborted);
      CHECK(error.says("the operator pressed stop"));
      CHECK_FALSE(error.says("again"));
      CHECK(error.where.peer == 0);
    }
  }
}

/// After a failure every call of every kind throws at once, claims still work.
template <class Backend>
void check_poisoned() {
  const auto errors = failures<Backend>(2, long_timeout, [](auto& comm) {
    if (comm.rank() == 1) comm.abort("first");
    std::vector<float> data(8, 1.0F);
    const std::vector<rank_error> calls{
        error_of([&] { all_reduce_once(comm); }),
        error_of([&] { scatter(comm, data.data(), 2, 1.0F); }),
        error_of([&] { comm.broadcast(range<float, full>(data.data(), 4), 0, {}).wait({}); }),
        error_of([&] {
          comm.all_gather(range<const float, shard>(data.data(), 2),
                          range<float, full>(data.data() + 2, 4), {})
              .wait({});
        }),
        error_of([&] { comm.split(0); }),
    };
    for (const rank_error& call : calls) {
      if (call.kind != outcome::aborted || !call.says("first")) {
        throw std::runtime_error("not refused: " + call.text);
      }
    }
    if (!comm.claim()) throw std::runtime_error("claim failed");
  });
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::returned);
  }
}

}  // namespace zero::test
