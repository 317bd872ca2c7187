// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// links: plan_core
// timeout: 120
#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <zero/backends/threads.hpp>
#include <zero/engine.hpp>
#include <zero/memory.hpp>

#include "layout_plan.hpp"
#include "unit/plan/random_layout.hpp"

// What zero-plan says of a layout against engines that are really constructed.

using namespace zero;

namespace {

/// What one rank's engine took.
struct taken {
  held_bytes held;                 ///< by the engine's ledger
  std::uint64_t memory_bytes = 0;  ///< by the memory it was given
  std::uint64_t announced_bytes = 0;
  std::string stage;
};

template <class S>
std::vector<taken> construct(const model_layout& layout, const planning::plan_question& question) {
  using engine_type = engine<S, bf16_mixed, threads_communicator, adamw>;
  return run_threads(question.ranks, [&](threads_communicator& ranks) {
    counting_memory memory;
    const engine_type built(ranks, layout, adamw{},
                            {.accumulation = question.mode, .memory = &memory});
    return taken{built.ledger().held, memory.held_bytes(),
                 engine_type::required_bytes(layout, built.ranks(), built.rank(), question.mode),
                 std::string(engine_type::stage::name)};
  });
}

std::vector<taken> construct(const model_layout& layout, const planning::plan_question& question) {
  const std::string_view stage = question.stage.name;
  if (stage == stage0::name) return construct<stage0>(layout, question);
  if (stage == stage1::name) return construct<stage1>(layout, question);
  if (stage == stage2::name) return construct<stage2>(layout, question);
  if (stage == stage3::name) return construct<stage3>(layout, question);
  return construct<stage3_keep_gathered>(layout, question);
}

}  // namespace

TEST_CASE("fault_53 engines hold what zero-plan says, for 200 random layouts") {
  constexpr std::uint64_t seed = 200;
  INFO("seed " << seed);
  test::layout_generator generator(seed);
  for (int i = 0; i < 200; ++i) {
    const model_layout layout = generator.draw().layout;
    planning::plan_question question{
        {}, planning::find_policy("bf16_mixed", "adamw"), 1 + i % 4, 0, accumulation::none, 1};
    if (i % 3 != 0) {
      question.mode = i % 3 == 1 ? accumulation::reduce_last : accumulation::reduce_every;
      question.micro_batches = 2;
    }
    for (const planning::named_stage& stage : planning::stages) {
      question.stage = stage;
      if (question.mode == accumulation::reduce_every && !stage.flags.partitions_optimizer_state) {
        continue;
      }
      CAPTURE(i, question.ranks, std::string(stage.name), layout.alignment_bytes());
      const std::vector<taken> ranks = construct(layout, question);
      for (question.rank = 0; question.rank < question.ranks; ++question.rank) {
        const planning::plan_answer answer = planning::answer(layout, question);
        const taken& rank = ranks[static_cast<std::size_t>(question.rank)];
        REQUIRE(rank.stage == stage.name);
        REQUIRE(rank.held == answer.plan.held);
        REQUIRE(rank.held == answer.estimate);
        REQUIRE(rank.memory_bytes == answer.plan.arena_bytes);
        REQUIRE(rank.announced_bytes == answer.plan.arena_bytes);
        REQUIRE(answer.is_consistent());
      }
      question.rank = 0;
    }
  }
}
