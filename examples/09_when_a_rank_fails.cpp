// SPDX-License-Identifier: Apache-2.0
// What peers see when a rank throws, when ranks disagree, and when one does not come: a typed
// error, at once or at the deadline. Nobody hangs.

#include <zero/zero.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

namespace {

struct trainer {
  explicit trainer(zero::threads_communicator& ranks) : engine(ranks, make_layout(), zero::sgd{}) {
    engine.initialize([](const zero::tensor_info&, std::uint64_t, std::span<float> values) {
      for (float& value : values) value = 1;
    });
  }

  /// One micro-batch; `compute` runs while the unit is open in backward.
  template <class Function>
  void run_pass(Function compute) {
    auto pass = engine.train();
    pass.forward(unit).finish();
    auto opened = pass.backward(unit);
    compute();
    for (float& element : opened.gradients(tensor)) element += 1;
    std::move(opened).finish();
    pass.end();
  }

  zero::model_layout make_layout() {
    zero::model_layout layout;
    unit = layout.add_unit("layer");
    tensor = layout.add_tensor(unit, "weight", {100});
    return layout;
  }

  zero::unit_id unit;
  zero::tensor_id tensor;
  zero::engine<zero::stage3, zero::fp32, zero::threads_communicator, zero::sgd> engine;
};

bool is_true(bool condition, const char* what) {
  if (!condition) std::printf("NOT SO: %s\n", what);
  return condition;
}

template <class Error>
bool is_a(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error&) {
    return true;
  } catch (...) {
  }
  return false;
}

/// Rank 1 throws an exception of its own in the middle of a backward pass.
bool a_rank_throws() {
  const auto result = zero::try_run_threads(3, [](zero::threads_communicator& ranks) {
    trainer t(ranks);
    try {
      t.run_pass([&] {
        if (ranks.rank() == 1) throw std::domain_error("sample 17 is damaged");
      });
    } catch (const zero::aborted_error& e) {
      if (ranks.rank() == 0) std::printf("  rank 0: %s\n", e.what());
      t.engine.step();  // engine and communicator are poisoned: the same error again, at once
    }
  });
  bool passed = is_true(result.failed_rank() == 1, "the first cause is rank 1's");
  try {
    result.rethrow();
    passed = is_true(false, "the cause is rethrown");
  } catch (const std::domain_error& e) {  // the very object, by its own type
    std::printf("  cause, rank %d: %s\n", result.failed_rank(), e.what());
  }
  for (const int rank : {0, 2}) {
    passed =
        is_true(is_a<zero::aborted_error>(result.error(rank)), "a peer learned of it") && passed;
  }
  return passed;
}

/// Rank 2 passes another learning rate. Every rank throws before any state changes, and goes on.
bool ranks_disagree() {
  const auto agreed = zero::run_threads(3, [](zero::threads_communicator& ranks) {
    trainer t(ranks);
    t.run_pass([] {});
    bool noticed = false;
    try {
      t.engine.step({.lr = ranks.rank() == 2 ? 0.5 : 0.25});
    } catch (const zero::mismatch_error& e) {
      noticed = true;
      if (ranks.rank() == 0) std::printf("  rank 0: %s\n", e.what());
    }
    const bool unchanged = t.engine.steps() == 0;
    return noticed && unchanged && t.engine.step({.lr = 0.25}).get().step == 1;
  });
  bool passed = true;
  for (const bool rank : agreed) passed = is_true(rank, "a rank noticed and went on") && passed;
  return passed;
}

/// Rank 2 does not come to a collective. The others wait until the deadline and say for whom.
bool a_rank_is_missing() {
  std::atomic<int> gave_up{0};
  const zero::threads_options options{.timeout = std::chrono::milliseconds(300)};
  const auto result = zero::try_run_threads(3, options, [&](zero::threads_communicator& ranks) {
    double value = 1;
    if (ranks.rank() == 2) {
      while (gave_up < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    try {
      ranks.all_reduce(zero::range<double, zero::full>(&value, 1)).wait({});
    } catch (const zero::communicator_error& e) {
      std::printf("  rank %d: %s\n", ranks.rank(), e.what());
      ++gave_up;
      throw;
    }
  });
  // On a busy machine a rank may come so late itself that another one names it as missing too.
  const bool timed_out =
      is_a<zero::timeout_error>(result.error(0)) || is_a<zero::timeout_error>(result.error(1));
  return is_true(timed_out, "a deadline passed") && is_true(gave_up == 3, "nobody hangs");
}

}  // namespace

int main() {
  bool passed = true;
  std::printf("a rank throws:\n");
  passed = a_rank_throws() && passed;
  std::printf("ranks disagree:\n");
  passed = ranks_disagree() && passed;
  std::printf("a rank is missing:\n");
  passed = a_rank_is_missing() && passed;
  return passed ? 0 : 1;
}
