// SPDX-License-Identifier: Apache-2.0
// labels: fault
#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <vector>

#include <zero/estimate.hpp>
#include <zero/optimizer.hpp>
#include <zero/plan.hpp>

#include "random_layout.hpp"

using namespace zero;

namespace {

constexpr std::array stages{flags_of<stage0>(), flags_of<stage1>(), flags_of<stage2>(),
                            flags_of<stage3>(), flags_of<stage3_keep_gathered>()};
constexpr std::array precisions{
    bytes_of<fp32, adamw>(),           bytes_of<bf16_mixed, adamw>(),
    bytes_of<fp16_mixed, adamw>(),     bytes_of<bf16_mixed_fp32_gradients, adamw>(),
    bytes_of<bf16_remainder, adamw>(), bytes_of<fp32, sgd>()};
constexpr std::array modes{accumulation::none, accumulation::reduce_last,
                           accumulation::reduce_every};

constexpr std::uint64_t seed = 1910'02054;

/// Calls `check(request)` for every stage, precision, mode and rank of a group.
template <class Check>
void for_each_request(int ranks, int replicas, Check check) {
  for (const stage_flags stage : stages) {
    if (replicas > 1 && !stage.partitions_optimizer_state)
      continue;
    for (const element_bytes& bytes : precisions) {
      for (const accumulation mode : modes) {
        if (mode == accumulation::reduce_every && !stage.partitions_optimizer_state)
          continue;
        for (int rank = 0; rank < ranks; ++rank) {
          // Two replicas round before their sums cross, three do not.
          const std::uint64_t crossing = replicas == 3 ? sizeof(float) : bytes.gradient;
          check(plan_request{stage, bytes, ranks, rank, mode, replicas, crossing});
        }
      }
    }
  }
}

/// What the planned collectives add up to, counted from the list alone.
moved_elements sum_of(const std::vector<planned_collective>& collectives, int ranks,
                      int replicas) {
  using operation = planned_collective::operation;
  moved_elements moved;
  const auto all = static_cast<std::uint64_t>(ranks * replicas);
  if (all == 1)
    return moved;
  for (const planned_collective& c : collectives) {
    const bool crosses = c.what == operation::crossing_reduce_scatter ||
                         c.what == operation::crossing_all_gather;
    const auto n = static_cast<std::uint64_t>(crosses ? replicas : ranks);
    (crosses                                ? moved.crossing
     : c.what == operation::reduce_scatter ? moved.reduce_scatter
                                           : moved.all_gather) += c.elements;
    moved.padding += c.padding;
    moved.wire_bytes += (c.elements + c.padding) / n * (n - 1) * c.element_bytes;
  }
  moved.all_reduce = plan::control_elements;
  moved.wire_bytes += (all - 1) * plan::control_elements * sizeof(double);
  return moved;
}

/// The model states of all ranks together by the paper's formula; frozen tensors have parameters
/// only.
std::uint64_t formula_bytes(const model_layout& layout, const plan_request& request) {
  const auto n = static_cast<std::uint64_t>(request.ranks);
  return formula_of(request.stage, request.bytes).all_ranks_bytes(layout.trainable_elements(), n) +
         formula_of(request.stage, {.parameter = request.bytes.parameter})
             .all_ranks_bytes(layout.frozen_elements(), n);
}

}  // namespace

TEST_CASE("fault_53 plan and estimate agree for random layouts") {
  INFO("seed " << seed);
  test::layout_generator generator(seed);
  int frozen_layouts = 0;
  int tied_layouts = 0;
  int repeated_layouts = 0;
  int empty_tensors = 0;
  for (int i = 0; i < 240; ++i) {
    const test::random_layout drawn = generator.draw();
    const model_layout& layout = drawn.layout;
    const test::layout_features& features = drawn.features;
    const int ranks = 1 + i % 8;
    CAPTURE(i, ranks, layout.alignment_bytes());
    frozen_layouts += features.frozen ? 1 : 0;
    tied_layouts += features.tied ? 1 : 0;
    repeated_layouts += features.repeated ? 1 : 0;
    empty_tensors += features.zero_size ? 1 : 0;
    std::uint64_t disagreements = 0;
    const int replicas = 1 + i % 3;
    for_each_request(ranks, replicas, [&](const plan_request& request) {
      const plan planned = make_plan(layout, request);
      const rank_estimate estimate(layout, request);
      const std::uint64_t batches = request.mode == accumulation::none ? 1 : 3;
      const bool agree =
          planned.held == estimate.held() && planned.arena_bytes == planned.held.total() &&
          sum_of(step_collectives(layout, planned, batches), ranks, replicas) ==
              estimate.moved(batches);
      if (!agree)
        ++disagreements;
    });
    REQUIRE(disagreements == 0);
  }
  // The draw must not have become one-sided.
  REQUIRE(frozen_layouts > 36);
  REQUIRE(tied_layouts > 36);
  REQUIRE(repeated_layouts > 36);
  REQUIRE(empty_tensors > 36);
}

TEST_CASE("fault_53 the ranks together hold the paper's bytes, whatever N divides") {
  INFO("seed " << seed + 1);
  test::layout_generator generator(seed + 1);
  for (int i = 0; i < 60; ++i) {
    const model_layout layout = generator.draw().layout;
    const int ranks = 1 + i % 8;
    CAPTURE(i, ranks);
    std::uint64_t wrong = 0;
    std::uint64_t together = 0;
    // Each of several replicas holds the formula's bytes by itself.
    for_each_request(ranks, 1 + i % 3, [&](const plan_request& request) {
      if (request.mode != accumulation::none)
        return;
      together += make_plan(layout, request).held.model_states();
      if (request.rank + 1 < ranks)
        return;
      if (together != formula_bytes(layout, request))
        ++wrong;
      together = 0;
    });
    REQUIRE(wrong == 0);
  }
}
