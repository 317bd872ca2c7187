// SPDX-License-Identifier: Apache-2.0
// labels: fault
#include <zero/plan.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/optimizer.hpp>

#include "random_layout.hpp"

using Catch::Matchers::Contains;
using namespace zero;

namespace {

using operation = planned_collective::operation;
using phase = planned_collective::phase;

template <class S>
plan_request request_for(int ranks, int rank = 0, accumulation mode = accumulation::none) {
  return {flags_of<S>(), bytes_of<bf16_mixed, adamw>(), ranks, rank, mode};
}

/// Embedding, two blocks of different size, the embedding again as head.
model_layout tied_model() {
  model_layout layout({.alignment_bytes = 2});
  const unit_id embedding = layout.add_unit("embedding");
  layout.add_tensor(embedding, "wte", {8});
  layout.add_tensor(layout.add_unit("block0"), "w0", {64});
  layout.add_tensor(layout.add_unit("block1"), "w1", {32});
  layout.use(embedding);
  return layout;
}

struct short_collective {
  operation what;
  phase when;
  std::uint32_t unit;
  friend bool operator==(const short_collective&, const short_collective&) = default;
};

template <class S>
std::vector<short_collective> collectives_of(const model_layout& layout, int ranks,
                                             std::uint64_t micro_batches = 1,
                                             accumulation mode = accumulation::none) {
  const plan planned = make_plan(layout, request_for<S>(ranks, 0, mode));
  std::vector<short_collective> result;
  for (const planned_collective& c : step_collectives(layout, planned, micro_batches)) {
    result.push_back({c.what, c.when, c.unit.value});
  }
  return result;
}

constexpr short_collective gather(phase when, std::uint32_t unit) {
  return {operation::all_gather, when, unit};
}
constexpr short_collective reduce(std::uint32_t unit) {
  return {operation::reduce_scatter, phase::backward, unit};
}

std::uint64_t slot_bytes(const unit_plan& unit, std::uint64_t element) {
  return round_up(unit.trainable.padded_elements() * element, arena::alignment_bytes);
}

}  // namespace

TEST_CASE("buffers lie one after the other, each at an aligned place") {
  constexpr std::uint64_t seed = 17;
  INFO("seed " << seed);
  test::layout_generator generator(seed);
  for (int i = 0; i < 100; ++i) {
    const model_layout layout = generator.draw().layout;
    const int ranks = 1 + i % 8;
    CAPTURE(i, ranks);
    for (const plan& planned : {make_plan(layout, request_for<stage0>(ranks)),
                                make_plan(layout, request_for<stage2>(ranks)),
                                make_plan(layout, request_for<stage3>(ranks, ranks - 1)),
                                make_plan(layout, request_for<stage3_keep_gathered>(ranks))}) {
      std::uint64_t next = 0;
      for (const planned_buffer& buffer : planned.buffers) {
        REQUIRE(buffer.offset_bytes == next);
        REQUIRE(buffer.offset_bytes % arena::alignment_bytes == 0);
        next += buffer.real_bytes + buffer.padding_bytes;
      }
      REQUIRE(planned.arena_bytes == next);
      REQUIRE(planned.held.total() == next);
    }
  }
}

TEST_CASE("neighbours of the schedule never share bytes of a slot") {
  constexpr std::uint64_t seed = 23;
  INFO("seed " << seed);
  test::layout_generator generator(seed);
  for (int i = 0; i < 200; ++i) {
    const model_layout layout = generator.draw().layout;
    CAPTURE(i);
    const plan planned = make_plan(layout, request_for<stage3>(2 + i % 7));
    const std::uint64_t element = planned.request.bytes.gradient;
    for (std::size_t p = 0; p < planned.schedule.size(); ++p) {
      const unit_plan& one = planned.units[planned.schedule[p].value];
      REQUIRE(one.unreduced_gradients + slot_bytes(one, element) <= planned.arena_bytes);
      if (p + 1 == planned.schedule.size() || planned.schedule[p] == planned.schedule[p + 1]) {
        continue;
      }
      const unit_plan& two = planned.units[planned.schedule[p + 1].value];
      const interval first{one.unreduced_gradients,
                           one.unreduced_gradients + slot_bytes(one, element)};
      const interval second{two.unreduced_gradients,
                            two.unreduced_gradients + slot_bytes(two, element)};
      REQUIRE(intersect(first, second).empty());
      const interval gathered_one{one.gathered_trainable,
                                  one.gathered_frozen + one.frozen.padded_elements() * element};
      const interval gathered_two{two.gathered_trainable,
                                  two.gathered_frozen + two.frozen.padded_elements() * element};
      REQUIRE(intersect(gathered_one, gathered_two).empty());
    }
  }
}

TEST_CASE("one rank needs no slots and sends nothing") {
  const model_layout layout = tied_model();
  const plan planned = make_plan(layout, request_for<stage3>(1));
  REQUIRE_FALSE(planned.gathers_into_slots());
  REQUIRE_FALSE(planned.reduces_from_slots());
  REQUIRE(planned.held.transient == plan::control_elements * sizeof(double));
  REQUIRE(step_collectives(layout, planned).empty());
}

TEST_CASE("a unit with several uses has a slot of its own, the others share") {
  const plan planned = make_plan(tied_model(), request_for<stage3>(2));
  REQUIRE(planned.units[0].uses == 2);
  REQUIRE_FALSE(planned.units[0].shares_parameter_region);
  REQUIRE(planned.units[1].shares_parameter_region);
  REQUIRE(planned.units[2].shares_parameter_region);
  // The embedding's 8 elements, and the two blocks side by side: (64 + 128 + 64) bytes, twice.
  REQUIRE(planned.held.transient == 2 * (64 + 128 + 64) + 64);
}

TEST_CASE("parameters that stay gathered have slots of their own") {
  model_layout layout({.alignment_bytes = 2});
  for (int u = 0; u < 4; ++u) {
    layout.add_tensor(layout.add_unit("u" + std::to_string(u)), "t" + std::to_string(u), {32});
  }
  // Gathered: all four units of 64 bytes, against two; unreduced gradients of two; control.
  REQUIRE(make_plan(layout, request_for<stage3_keep_gathered>(2)).held.transient ==
          4 * 64 + 2 * 64 + 64);
  REQUIRE(make_plan(layout, request_for<stage3>(2)).held.transient == 2 * 64 + 2 * 64 + 64);
}

TEST_CASE("stage 0 reduces and gathers gradients, unit by unit, in backward order") {
  REQUIRE(collectives_of<stage0>(tied_model(), 2) ==
          std::vector{reduce(2), gather(phase::backward, 2), reduce(1), gather(phase::backward, 1),
                      reduce(0), gather(phase::backward, 0)});
}

TEST_CASE("stages 1 and 2 reduce gradients and gather updated parameters") {
  const std::vector expected{reduce(2),
                             reduce(1),
                             reduce(0),
                             gather(phase::update, 0),
                             gather(phase::update, 1),
                             gather(phase::update, 2)};
  REQUIRE(collectives_of<stage1>(tied_model(), 2) == expected);
  REQUIRE(collectives_of<stage2>(tied_model(), 2) == expected);
}

TEST_CASE("fault_54 stage 3 gathers each unit once per traversal, one ahead of its use") {
  REQUIRE(collectives_of<stage3>(tied_model(), 2) ==
          std::vector{gather(phase::forward, 0), gather(phase::forward, 1),
                      gather(phase::forward, 2), gather(phase::backward, 0),
                      gather(phase::backward, 2), gather(phase::backward, 1), reduce(2), reduce(1),
                      reduce(0)});
}

TEST_CASE("stage 3 that keeps units gathered gathers once") {
  REQUIRE(collectives_of<stage3_keep_gathered>(tied_model(), 2) ==
          std::vector{gather(phase::forward, 0), gather(phase::forward, 1),
                      gather(phase::forward, 2), reduce(2), reduce(1), reduce(0)});
}

TEST_CASE("fault_24 micro-batches reduce once or every time, by the mode") {
  const auto reduces = [](accumulation mode) {
    const auto list = collectives_of<stage2>(tied_model(), 2, 4, mode);
    return std::count_if(list.begin(), list.end(), [](const short_collective& c) {
      return c.what == operation::reduce_scatter;
    });
  };
  REQUIRE(reduces(accumulation::reduce_last) == 3);
  REQUIRE(reduces(accumulation::reduce_every) == 12);
}

TEST_CASE("fault_10 the stage that was asked for is planned, whatever N divides") {
  model_layout layout({.alignment_bytes = 2});
  layout.add_tensor(layout.add_unit("unit"), "a", {7});
  for (int ranks = 2; ranks <= 8; ++ranks) {
    std::uint64_t optimizer = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const plan planned = make_plan(layout, request_for<stage1>(ranks, rank));
      REQUIRE(planned.request.stage.partitions_optimizer_state);
      REQUIRE_FALSE(planned.request.stage.partitions_gradients);
      REQUIRE(planned.held.parameters == 14);
      REQUIRE(planned.held.gradients == 14);
      optimizer += planned.held.optimizer;
    }
    REQUIRE(optimizer == 7 * 12);
  }
}

TEST_CASE("fault_01 ranks without elements hold padding only") {
  model_layout layout({.alignment_bytes = 2});
  layout.add_tensor(layout.add_unit("unit"), "a", {3});
  for (int rank = 0; rank < 8; ++rank) {
    const plan planned = make_plan(layout, request_for<stage3>(8, rank));
    REQUIRE(planned.held.model_states() == (rank < 3 ? 16u : 0u));
    REQUIRE(planned.held.total() == make_plan(layout, request_for<stage3>(8)).held.total());
  }
}

TEST_CASE("fault_02 empty tensors, empty units and no unit at all can be planned") {
  for (const std::vector<std::uint64_t>& sizes :
       {std::vector<std::uint64_t>{8, 0, 24}, {0}, {0, 0, 1}, {}}) {
    model_layout layout;
    const unit_id unit = layout.add_unit("unit");
    std::uint64_t sum = 0;
    for (const std::uint64_t size : sizes) {
      layout.add_tensor(unit, "t" + std::to_string(layout.tensor_count()), {size});
      sum += size;
    }
    for (const int ranks : {2, 4}) {
      std::uint64_t held = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        held += make_plan(layout, request_for<stage3>(ranks, rank)).held.model_states();
      }
      REQUIRE(held == 16 * sum);
      // Nothing to send is not sent.
      REQUIRE(collectives_of<stage3>(layout, ranks).empty() == (sum == 0));
    }
  }
  REQUIRE(make_plan(model_layout{}, request_for<stage3>(4)).held.total() == 64);
}

TEST_CASE("fault_37 2^31 + 5 elements on three ranks") {
  constexpr std::uint64_t numel = (std::uint64_t{1} << 31) + 5;
  model_layout layout;
  layout.add_tensor(layout.add_unit("unit"), "large", {numel});
  std::uint64_t held = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const plan planned = make_plan(layout, request_for<stage3>(3, rank));
    held += planned.held.model_states();
    REQUIRE(planned.units[0].trainable.owned_by(rank).size() == 715'827'904);
  }
  REQUIRE(held == 16 * numel);
  const plan planned = make_plan(layout, request_for<stage1>(3));
  REQUIRE(planned.held.parameters == 2 * numel);
  const auto collectives = step_collectives(layout, planned);
  REQUIRE(collectives.size() == 2);
  REQUIRE(collectives[0].elements == numel);
  REQUIRE(collectives[0].elements + collectives[0].padding == 2'147'483'712);
}

TEST_CASE("10^12 elements on 10,000 ranks are planned without memory for them") {
  model_layout layout;
  for (int u = 0; u < 1000; ++u) {
    layout.add_tensor(layout.add_unit("u" + std::to_string(u)), "t" + std::to_string(u),
                      {25'000, 40'000});
  }
  const plan planned = make_plan(layout, request_for<stage3>(10'000, 9'999));
  REQUIRE(layout.trainable_elements() == 1'000'000'000'000);
  REQUIRE(planned.units[0].trainable.shard_elements == 100'000);
  REQUIRE(planned.held.model_states() == 1'600'000'000);
  REQUIRE(planned.held.padding == 0);
}

TEST_CASE("requests that make no sense are refused with their values") {
  const model_layout layout = tied_model();
  REQUIRE_THROWS_WITH(make_plan(layout, request_for<stage1>(0)), Contains("rank 0 of 0"));
  REQUIRE_THROWS_WITH(make_plan(layout, request_for<stage1>(-1)), Contains("of -1 ranks"));
  REQUIRE_THROWS_WITH(make_plan(layout, request_for<stage1>(4, 4)), Contains("rank 4 of 4"));
  REQUIRE_THROWS_WITH(make_plan(layout, request_for<stage1>(4, -1)), Contains("rank -1 of 4"));
  REQUIRE_THROWS_WITH(make_plan(layout, request_for<stage0>(4, 0, accumulation::reduce_every)),
                      Contains("reduce_every") && Contains("reduce_last"));
}
