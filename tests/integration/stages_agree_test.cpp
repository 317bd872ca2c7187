// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 240
#include <catch2/catch.hpp>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// Every comparison here is of bits: parameters as stored, fp32 values, norms. `train` itself
// throws when ledger, meter and estimate disagree on any rank.

namespace {

engine_choice with_stage(precision_kind precision, stage_kind stage) {
  return {stage, precision, optimizer_kind::adamw};
}

trained_state reference(precision_kind precision, int ranks, const model_layout& layout,
                        const training_options& options,
                        const engine_options& settings = test_settings()) {
  return train(with_stage(precision, stage_kind::stage1), ranks, layout, options, settings);
}

}  // namespace

TEST_CASE("all stages give the same bits for N = 1 to 8, and the ledger equals the estimate") {
  const model_layout layout = sample_layout();
  training_options options;
  options.gradient = real_gradient;
  options.arguments = {.lr = 0.01, .clip = 1.0};
  for (const precision_kind precision : built_precisions()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const trained_state expected = reference(precision, ranks, layout, options);
      for (const stage_kind stage : all_stages) {
        CAPTURE(name_of(precision), name_of(stage), ranks);
        CHECK(train(with_stage(precision, stage), ranks, layout, options) == expected);
      }
    }
  }
}

TEST_CASE("alignment of the layout does not change values") {
  training_options options;
  options.gradient = real_gradient;
  for (const int ranks : {1, 3, 4}) {
    const auto expected = reference(precision_kind::bf16_mixed, ranks, sample_layout(64), options);
    for (const std::uint64_t alignment : {2U, 4U, 16U, 256U}) {
      for (const stage_kind stage : {stage_kind::stage0, stage_kind::stage2, stage_kind::stage3}) {
        CAPTURE(ranks, alignment, name_of(stage));
        const auto state = train(with_stage(precision_kind::bf16_mixed, stage), ranks,
                                 sample_layout(alignment), options);
        CHECK(state.parameter_bits == expected.parameter_bits);
        CHECK(state.values == expected.values);
      }
    }
  }
}

TEST_CASE("the open and close form gives the same bits as scopes") {
  const model_layout layout = sample_layout();
  training_options scopes;
  training_options calls;
  calls.uses_scopes = false;
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    const engine_choice choice = with_stage(precision_kind::bf16_mixed, stage);
    CHECK(train(choice, 3, layout, calls) == train(choice, 3, layout, scopes));
  }
}

TEST_CASE("accumulation gives the same bits in all stages, and the volume of its mode") {
  const model_layout layout = sample_layout();
  training_options options;
  options.gradient = real_gradient;
  options.arguments = {.lr = 0.01, .clip = 2.0};
  for (const precision_kind precision : built_precisions()) {
    for (const accumulation mode : {accumulation::reduce_last, accumulation::reduce_every}) {
      for (const std::uint64_t micro_batches : {1U, 2U, 3U}) {
        for (const int ranks : {1, 2, 3}) {
          options.micro_batches = micro_batches;
          const engine_options settings = test_settings(mode);
          const auto expected = reference(precision, ranks, layout, options, settings);
          for (const stage_kind stage : all_stages) {
            if (mode == accumulation::reduce_every && stage == stage_kind::stage0) continue;
            CAPTURE(name_of(precision), name_of(stage), ranks, micro_batches, int(mode));
            CHECK(train(with_stage(precision, stage), ranks, layout, options, settings) ==
                  expected);
          }
        }
      }
    }
  }
}

TEST_CASE("random delays of every collective change nothing") {
  const model_layout layout = sample_layout();
  training_options options;
  options.gradient = real_gradient;
  const std::uint64_t seeds = full_counts() ? 50 : 3;
  for (const stage_kind stage : all_stages) {
    const engine_choice choice = with_stage(precision_kind::bf16_mixed, stage);
    const trained_state expected = train(choice, 3, layout, options);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      CAPTURE(name_of(stage), seed);
      const delaying_options delays{std::chrono::microseconds(500), seed};
      CHECK(train(choice, 3, layout, options, test_settings(), delays) == expected);
    }
  }
}

#ifndef ZERO_TEST_REDUCED
TEST_CASE("all optimizers agree between stages 1 and 3") {
  const model_layout layout = sample_layout();
  training_options options;
  options.gradient = real_gradient;
  for (const precision_kind precision : {precision_kind::fp32, precision_kind::bf16_mixed}) {
    for (const optimizer_kind optimizer :
         {optimizer_kind::adam, optimizer_kind::sgd, optimizer_kind::lion}) {
      for (const int ranks : {1, 2, 5}) {
        CAPTURE(name_of(precision), name_of(optimizer), ranks);
        const auto expected =
            train({stage_kind::stage1, precision, optimizer}, ranks, layout, options);
        CHECK(train({stage_kind::stage3, precision, optimizer}, ranks, layout, options) ==
              expected);
      }
    }
  }
}
#endif
