// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <zero/zero.hpp>

#include "support/allocation_counter.hpp"
#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;

// From the return of initialize() on, passes, steps and the collectives of the threads backend
// allocate nothing in any rank thread, the first step included.

namespace {

model_layout small_model(unit_id& first, unit_id& second, tensor_id& a, tensor_id& b) {
  model_layout layout;
  first = layout.add_unit("first");
  a = layout.add_tensor(first, "a", {100, 3});
  second = layout.add_unit("second");
  b = layout.add_tensor(second, "b", {77}, no_decay);
  layout.add_tensor(second, "fixed", {9}, decay, frozen);
  layout.use(first);
  return layout;
}

template <class S, class P>
std::vector<std::uint64_t> allocations_in_training(int ranks, accumulation mode) {
  return run_threads(ranks, long_timeout, [&](threads_communicator& threads) {
    unit_id first;
    unit_id second;
    tensor_id a;
    tensor_id b;
    const model_layout layout = small_model(first, second, a, b);
    engine<S, P, threads_communicator, adamw> engine(threads, layout, adamw{},
                                                     {.accumulation = mode});
    engine.initialize([](const tensor_info&, std::uint64_t, std::span<float> values) {
      for (float& value : values) value = 0.5F;
    });
    const std::uint64_t micro_batches = mode == accumulation::none ? 1 : 2;
    const std::uint64_t before = allocations_of_this_thread();
    for (int step = 0; step < 3; ++step) {
      for (std::uint64_t m = 0; m < micro_batches; ++m) {
        auto pass = engine.train({.micro_batch = m, .of = micro_batches});
        for (const unit_id unit : {first, second, first}) {
          auto scope = pass.forward(unit);
          std::move(scope).finish();
        }
        for (const unit_id unit : {first, second, first}) {
          auto scope = pass.backward(unit);
          const tensor_id tensor = unit == first ? a : b;
          const auto gradients = scope.gradients(tensor);
          for (auto& value : gradients) value = typename P::gradient_type(1.0F);
        }
      }
      engine.step({.lr = 0.1, .clip = 1.0});
      auto evaluation = engine.evaluate();
      for (const unit_id unit : {first, second, first})
        std::move(evaluation.forward(unit)).finish();
    }
    return allocations_of_this_thread() - before;
  });
}

template <class S, class P>
void check_no_allocations() {
  for (const int ranks : {1, 2, 3}) {
    for (const accumulation mode :
         {accumulation::none, accumulation::reduce_last, accumulation::reduce_every}) {
      if (mode == accumulation::reduce_every && !S::partitions_optimizer_state) continue;
      for (const std::uint64_t count : allocations_in_training<S, P>(ranks, mode)) {
        CAPTURE(S::name, P::name, ranks, int(mode));
        CHECK(count == 0);
      }
    }
  }
}

}  // namespace

TEST_CASE("the counter sees an allocation") {
  // The address escapes, or a compiler may leave the allocation out.
  static const volatile void* volatile escaped = nullptr;
  const std::uint64_t before = allocations_of_this_thread();
  const std::vector<int> values(1000);
  escaped = values.data();
  CHECK(escaped != nullptr);
  CHECK(allocations_of_this_thread() > before);
}

TEST_CASE("passes, steps and collectives allocate nothing") {
  check_no_allocations<stage0, bf16_mixed>();
  check_no_allocations<stage1, bf16_mixed>();
  check_no_allocations<stage2, bf16_mixed>();
  check_no_allocations<stage3, fp16_mixed>();
  check_no_allocations<stage3_keep_gathered, bf16_mixed>();
}
