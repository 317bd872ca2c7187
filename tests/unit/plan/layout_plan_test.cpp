// SPDX-License-Identifier: Apache-2.0
// links: plan_core
#include "layout_plan.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>

#include "gpt_layout.hpp"
#include "program.hpp"
#include "random_layout.hpp"

using namespace planning;

namespace {

plan_question question_for(const named_stage& stage, int ranks, int rank = 0) {
  return {stage, find_policy("bf16_mixed", "adamw"), ranks, rank, zero::accumulation::none, 1};
}

/// The extremes of one state, by planning every rank.
template <class Member>
extremes by_hand(const zero::model_layout& layout, plan_question question, Member member) {
  extremes result{~std::uint64_t{0}, 0};
  for (question.rank = 0; question.rank < question.ranks; ++question.rank) {
    const zero::held_bytes held =
        zero::make_plan(layout, {question.stage.flags, question.policy.bytes, question.ranks,
                                 question.rank, question.mode})
            .held;
    result.least = std::min(result.least, held.*member);
    result.most = std::max(result.most, held.*member);
  }
  return result;
}

}  // namespace

TEST_CASE("extremes over ranks are those of planning every rank") {
  constexpr std::uint64_t seed = 4711;
  INFO("seed " << seed);
  zero::test::layout_generator generator(seed);
  for (int i = 0; i < 120; ++i) {
    const zero::model_layout layout = generator.draw().layout;
    plan_question question = question_for(stages[generator.below(stages.size())], 1 + i % 11);
    question.rank = static_cast<int>(generator.below(static_cast<std::uint64_t>(question.ranks)));
    if (question.stage.flags.partitions_optimizer_state && generator.one_in(2)) {
      question.mode = zero::accumulation::reduce_every;
      question.micro_batches = 2;
    }
    CAPTURE(i, question.ranks, question.rank, std::string(question.stage.name));
    const plan_answer answered = answer(layout, question);
    REQUIRE(answered.is_consistent());
    using zero::held_bytes;
    const held_over_ranks& over = answered.over_ranks;
    REQUIRE(over.parameters == by_hand(layout, question, &held_bytes::parameters));
    REQUIRE(over.gradients == by_hand(layout, question, &held_bytes::gradients));
    REQUIRE(over.optimizer == by_hand(layout, question, &held_bytes::optimizer));
    REQUIRE(over.accumulation == by_hand(layout, question, &held_bytes::accumulation));
    REQUIRE(over.padding == by_hand(layout, question, &held_bytes::padding));
  }
}

TEST_CASE("a trillion parameters on 10,000 ranks") {
  const zero::model_layout layout = make_gpt_layout({128, 25'600, 50'257, 2'048});
  REQUIRE(layout.trainable_elements() > 1'000'000'000'000);
  const plan_answer answered = answer(layout, question_for(find_stage("3"), 10'000));
  REQUIRE(answered.is_consistent());
  REQUIRE(answered.moved.total() == 3 * layout.trainable_elements());
  REQUIRE(answered.over_ranks.parameters.least < answered.over_ranks.parameters.most);
  REQUIRE(answered.over_ranks.padding.least == 0);
}

TEST_CASE("what leaves 64 bits is refused before anything is planned") {
  zero::model_layout layout;
  layout.add_tensor(layout.add_unit("unit"), "a", {(std::uint64_t{1} << 63) - 1});
  REQUIRE_THROWS_AS(answer(layout, question_for(find_stage("1"), 4)), example::usage_failure);
  REQUIRE_THROWS_AS(fit(layout, question_for(find_stage("1"), 4), 1), example::usage_failure);
}

TEST_CASE("a budget counts padding and units in flight") {
  const zero::model_layout layout = make_gpt_layout({4, 128, 256, 128});
  const auto total = [&](const char* stage) {
    return answer(layout, question_for(find_stage(stage), 4)).plan.held.total();
  };
  const auto smallest = [&](std::uint64_t bytes) {
    return fit(layout, question_for(find_stage("0"), 4), bytes).smallest_stage;
  };
  REQUIRE(smallest(total("0")) == "0");
  REQUIRE(smallest(total("0") - 1) == "1");
  REQUIRE(smallest(total("1") - 1) == "2");
  REQUIRE(smallest(total("2") - 1) == "3");
  REQUIRE(smallest(total("3") - 1).empty());
}

TEST_CASE("the text names every buffer and every collective") {
  const zero::model_layout layout = make_gpt_layout({1, 8, 20, 6});
  const plan_answer answered = answer(layout, question_for(find_stage("3"), 4));
  const std::string text = plan_text(layout, answered, true);
  REQUIRE(std::count(text.begin(), text.end(), '\n') >
          static_cast<std::ptrdiff_t>(answered.plan.buffers.size() + answered.collectives.size()));
  REQUIRE_THAT(text, Catch::Matchers::Contains("shared_parameters") &&
                         Catch::Matchers::Contains("12 Psi/N") &&
                         Catch::Matchers::Contains("= 3 Psi"));
  REQUIRE(plan_text(layout, answered, false).size() < text.size() / 2);
}
