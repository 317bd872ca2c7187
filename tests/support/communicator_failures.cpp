// SPDX-License-Identifier: Apache-2.0
#include "support/communicator_failures.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include <zero/numeric/bfloat16.hpp>
#include <zero/range.hpp>

#include "support/rank_runner.hpp"

namespace zero::test {

namespace {

void all_reduce_once(any_communicator& comm) {
  double value = 1;
  comm.all_reduce(range<double, full>(&value, 1), {}).wait({});
}

void scatter(any_communicator& comm, float* data, std::uint64_t count, float scale = 1.0F) {
  const auto n = static_cast<std::uint64_t>(comm.size());
  comm.reduce_scatter(range<const float, partial>(data, n * count),
                      range<float, shard>(data + n * count, count), {.scale = scale}, {})
      .wait({});
}

void gather(any_communicator& comm, float* data, std::uint64_t count) {
  const auto n = static_cast<std::uint64_t>(comm.size());
  comm.all_gather(range<const float, shard>(data + n * count, count),
                  range<float, full>(data, n * count), {})
      .wait({});
}

void send(any_communicator& comm, float* data, std::uint64_t count, int root = 0) {
  comm.broadcast(range<float, full>(data, count), root, {}).wait({});
}

/// What a rank's error has to be; what is not set is not looked at.
struct expected_error {
  outcome kind = outcome::returned;
  std::vector<std::string> parts{};
  std::string operation{};
  std::optional<std::uint64_t> sequence{};
  std::optional<int> peer{};
};

/// Collects what is not as expected, each with the place where it was seen.
class complaints {
 public:
  explicit complaints(std::string backend) : backend_(std::move(backend)) {}

  void set_case(std::string text) { case_ = std::move(text); }

  void expect(bool holds, const std::string& what) {
    if (!holds) text_ += case_ + ": " + what + "\n";
  }

  void expect_error(int rank, const rank_error& error, const expected_error& expected) {
    const std::string seen = "rank " + std::to_string(rank) + " got \"" + error.text + "\"";
    const communicator_failure& where = error.where;
    expect(error.kind == expected.kind, seen + ", not kind " + name_of(expected.kind));
    for (const std::string& part : expected.parts) {
      expect(error.says(part), seen + ", which does not say \"" + part + "\"");
    }
    if (expected.kind == outcome::returned) return;
    expect(where.backend == backend_, seen + ": backend " + where.backend);
    expect(where.rank == rank, seen + ": reported by rank " + std::to_string(where.rank));
    expect(expected.operation.empty() || where.operation == expected.operation,
           seen + ": operation " + where.operation);
    expect(!expected.sequence || where.sequence == *expected.sequence,
           seen + ": number " + std::to_string(where.sequence));
    expect(!expected.peer || where.peer == *expected.peer,
           seen + ": peer " + std::to_string(where.peer));
  }

  std::string take() { return std::move(text_); }

 private:
  static std::string name_of(outcome kind) {
    constexpr std::string_view names[] = {"returned", "usage",        "timeout", "mismatch",
                                          "aborted",  "communicator", "error",   "other"};
    return std::string(names[static_cast<std::size_t>(kind)]);
  }

  std::string backend_;
  std::string case_;
  std::string text_;
};

using void_body = std::function<void(any_communicator&)>;

any_outcome run(const any_ranks& ranks, int size, threads_options options, const void_body& body) {
  return ranks.run(size, options, [&body](any_communicator& comm) {
    body(comm);
    return std::string();
  });
}

std::vector<rank_error> failures(const any_ranks& ranks, int size, threads_options options,
                                 const void_body& body) {
  std::vector<rank_error> errors;
  for (const auto& error : run(ranks, size, options, body).errors) {
    errors.push_back(describe(error));
  }
  return errors;
}

void check_throwing_rank(const any_ranks& ranks, int size, int victim, std::uint64_t calls_before,
                         complaints& list) {
  const auto outcome = run(ranks, size, long_timeout, [&](any_communicator& comm) {
    for (std::uint64_t i = 0; i < calls_before; ++i) all_reduce_once(comm);
    if (comm.rank() == victim) throw std::domain_error("gradients are on fire");
    all_reduce_once(comm);
  });
  list.set_case("N = " + std::to_string(size) + ", victim " + std::to_string(victim) + ", after " +
                std::to_string(calls_before));
  list.expect(outcome.failed_rank == victim,
              "rank " + std::to_string(outcome.failed_rank) + " is named as the cause");
  for (int rank = 0; rank < size; ++rank) {
    const auto& error = outcome.errors[static_cast<std::size_t>(rank)];
    if (rank != victim) {
      list.expect_error(
          rank, describe(error),
          {outcome::aborted, {"gradients are on fire"}, "all_reduce", calls_before, victim});
      continue;
    }
    try {
      if (error) std::rethrow_exception(error);
      list.expect(false, "the victim returned");
    } catch (const std::domain_error&) {
    } catch (...) {
      list.expect(false, "the victim's exception lost its type");
    }
  }
}

/// One call by the odd rank out, another one by the others.
struct divergence {
  std::string name;
  std::string first;   ///< what the error says of one side
  std::string second;  ///< and of the other
  std::function<void(any_communicator&, bool is_odd_one, float* data)> call;
};

void scatter_bfloat16(any_communicator& comm, bool is_rounded) {
  std::vector<bfloat16> in(static_cast<std::size_t>(comm.size()) * 2);
  std::vector<bfloat16> rounded(2);
  std::vector<float> unrounded(2);
  const range<const bfloat16, partial> input(in.data(), in.size());
  if (is_rounded) {
    comm.reduce_scatter(input, range<bfloat16, shard>(rounded.data(), 2), {}, {}).wait({});
  } else {
    comm.reduce_scatter(input, range<float, shard>(unrounded.data(), 2), {}, {}).wait({});
  }
}

const std::vector<divergence>& divergences() {
  static const std::vector<divergence> all{
      {"operation", "all_reduce #1", "broadcast #1",
       [](any_communicator& comm, bool is_odd_one, float* data) {
         if (is_odd_one) return send(comm, data, 4);
         all_reduce_once(comm);
       }},
      {"type", "4 x float32", "4 x uint16",
       [](any_communicator& comm, bool is_odd_one, float* data) {
         std::vector<std::uint16_t> other(4);
         if (!is_odd_one) return send(comm, data, 4);
         comm.broadcast(range<std::uint16_t, full>(other.data(), 4), 0, {}).wait({});
       }},
      {"output type", "bfloat16 into float32", "bfloat16",
       [](any_communicator& comm, bool is_odd_one, float*) {
         scatter_bfloat16(comm, !is_odd_one);
       }},
      {"count", "3 x float32", "4 x float32",
       [](any_communicator& comm, bool is_odd_one, float* data) {
         send(comm, data, is_odd_one ? 3 : 4);
       }},
      {"root", "root 0", "root 1",
       [](any_communicator& comm, bool is_odd_one, float* data) {
         send(comm, data, 4, is_odd_one ? 1 : 0);
       }},
      {"scale", "reduce_scatter", "x 0.5",
       [](any_communicator& comm, bool is_odd_one, float* data) {
         scatter(comm, data, 2, is_odd_one ? 0.5F : 1.0F);
       }},
      {"one extra gather", "all_gather #1", "reduce_scatter #1",
       [](any_communicator& comm, bool is_odd_one, float* data) {
         if (is_odd_one) gather(comm, data, 2);
         scatter(comm, data, 2);
       }},
  };
  return all;
}

void check_divergence(const any_ranks& ranks, const divergence& kind, int size, int odd_one,
                      complaints& list) {
  // Where nobody sees the divergence it ends at the deadline, so that has to be near.
  const bool is_named = ranks.failures.names_divergence;
  const threads_options options =
      is_named ? long_timeout : threads_options{.timeout = ranks.failures.short_timeout};
  const auto errors = failures(ranks, size, options, [&](any_communicator& comm) {
    all_reduce_once(comm);
    std::vector<float> buffer(static_cast<std::size_t>(comm.size()) * 8, 1.0F);
    kind.call(comm, comm.rank() == odd_one, buffer.data());
  });
  list.set_case(kind.name + ", N = " + std::to_string(size) + ", odd one " +
                std::to_string(odd_one));
  for (int rank = 0; rank < size; ++rank) {
    const rank_error& error = errors[static_cast<std::size_t>(rank)];
    if (is_named) {
      list.expect_error(rank, error,
                        {outcome::mismatch,
                         {kind.first, kind.second, "rank " + std::to_string(odd_one)},
                         "",
                         1,
                         {}});
    } else {
      const auto expected = error.kind == outcome::aborted ? outcome::aborted : outcome::timeout;
      list.expect_error(rank, error, {expected, {}, "", 1, {}});
    }
  }
}

}  // namespace

std::string throwing_rank_violations(const any_ranks& ranks) {
  complaints list(ranks.backend);
  for (const int size : {1, 2, 4}) {
    for (int victim = 0; victim < size; victim += std::max(size - 1, 1)) {
      for (const std::uint64_t calls_before : {0U, 3U}) {
        check_throwing_rank(ranks, size, victim, calls_before, list);
      }
    }
  }
  return list.take();
}

std::string leaving_rank_violations(const any_ranks& ranks) {
  complaints list(ranks.backend);
  for (const int size : {2, 3}) {
    const auto errors = failures(ranks, size, long_timeout, [](any_communicator& comm) {
      const int steps = comm.rank() == 1 ? 2 : 3;
      for (int i = 0; i < steps; ++i) all_reduce_once(comm);
    });
    list.set_case("N = " + std::to_string(size));
    for (int rank = 0; rank < size; ++rank) {
      const rank_error& error = errors[static_cast<std::size_t>(rank)];
      if (rank == 1) {
        list.expect_error(rank, error, {});
      } else {
        // At N = 3 the other rank may have left, by its error, when this one looks.
        const std::string part = rank == 0 ? "rank 1 left" : " left";
        list.expect_error(rank, error, {outcome::aborted, {part}, "all_reduce", 2, {}});
      }
    }
  }
  return list.take();
}

std::string timeout_violations(const any_ranks& ranks) {
  complaints list(ranks.backend);
  const auto timeout = ranks.failures.short_timeout;
  for (const int size : {2, 4}) {
    const int late = size - 1;
    const auto errors = failures(ranks, size, {.timeout = timeout}, [&](any_communicator& comm) {
      all_reduce_once(comm);
      if (comm.rank() == late) std::this_thread::sleep_for(4 * timeout);
      all_reduce_once(comm);
    });
    list.set_case("N = " + std::to_string(size));
    const std::string who = "for rank(s) " + std::to_string(late);
    for (int rank = 0; rank < size; ++rank) {
      const rank_error& error = errors[static_cast<std::size_t>(rank)];
      if (rank == late) {
        const auto parts =
            ranks.failures.tells_the_late_rank_why ? std::vector{who} : std::vector<std::string>{};
        list.expect_error(rank, error, {outcome::aborted, parts, "all_reduce", 1, {}});
      } else {
        list.expect_error(rank, error, {outcome::timeout, {who}, "all_reduce", 1, late});
        // The deadline counts from the call; half of it leaves room for clocks.
        const double least = std::chrono::duration<double>(timeout).count() / 2;
        list.expect(error.where.elapsed_seconds > least,
                    "rank " + std::to_string(rank) + " waited only " +
                        std::to_string(error.where.elapsed_seconds) + " s");
      }
    }
  }
  return list.take();
}

std::string divergence_violations(const any_ranks& ranks) {
  complaints list(ranks.backend);
  for (const divergence& kind : divergences()) {
    for (const int size : {2, 4}) {
      for (const int odd_one : {0, size - 1}) check_divergence(ranks, kind, size, odd_one, list);
    }
  }
  return list.take();
}

std::string abort_violations(const any_ranks& ranks) {
  complaints list(ranks.backend);
  for (const int size : {2, 3}) {
    const auto errors = failures(ranks, size, long_timeout, [](any_communicator& comm) {
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
    list.set_case("N = " + std::to_string(size));
    for (int rank = 0; rank < size; ++rank) {
      const rank_error& error = errors[static_cast<std::size_t>(rank)];
      list.expect_error(rank, error,
                        {outcome::aborted, {"the operator pressed stop"}, "all_reduce", 0, 0});
      list.expect(!error.says("again"), "a later reason replaced the first: " + error.text);
    }
  }
  return list.take();
}

std::string poisoned_violations(const any_ranks& ranks) {
  complaints list(ranks.backend);
  const auto errors = failures(ranks, 2, long_timeout, [](any_communicator& comm) {
    if (comm.rank() == 1) comm.abort("first");
    std::vector<float> data(8, 1.0F);
    const rank_error calls[] = {
        error_of([&] { all_reduce_once(comm); }),
        error_of([&] { scatter(comm, data.data(), 2); }),
        error_of([&] { send(comm, data.data(), 4); }),
        error_of([&] { gather(comm, data.data(), 2); }),
        error_of([&] { comm.split(0); }),
    };
    for (const rank_error& call : calls) {
      if (call.kind != outcome::aborted || !call.says("first")) {
        throw std::runtime_error("not refused: " + call.text);
      }
    }
    if (!comm.claim()) throw std::runtime_error("claim failed");
  });
  list.set_case("N = 2");
  for (int rank = 0; rank < 2; ++rank) {
    list.expect_error(rank, errors[static_cast<std::size_t>(rank)], {});
  }
  return list.take();
}

}  // namespace zero::test
