// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// Rows of the fault list about the global norm, clipping and non-finite gradients.

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

model_layout four_parameters() {
  model_layout layout({.alignment_bytes = 2});
  layout.add_tensor(layout.add_unit("unit"), "weights", {4});
  return layout;
}

/// The report of one step in which every rank's gradient is `value(rank)` everywhere.
template <class Value>
step_report step_with(const engine_choice& choice, int ranks, const model_layout& layout,
                      Value value, const step_arguments& arguments = {.lr = 0.01}) {
  return on_ranks(choice, ranks, layout, test_settings(),
                  [&](any_engine& engine, int rank, rank_communicator&) {
                    return run_step(
                        engine, [&](const tensor_info&, std::uint64_t) { return value(rank); },
                        arguments);
                  })
      .front();
}

}  // namespace

TEST_CASE("fault_09 the norm does not depend on how tensors are cut into units") {
  const auto norm_of = [](std::uint64_t tensors_per_unit) {
    model_layout layout;
    unit_id unit;
    for (std::uint64_t t = 0; t < 24; ++t) {
      if (t % tensors_per_unit == 0) unit = layout.add_unit("unit" + std::to_string(t));
      layout.add_tensor(unit, "tensor" + std::to_string(t), {17 + t});
    }
    training_options options;
    options.steps = 1;
    options.gradient = real_gradient;
    return train({stage_kind::stage2, precision_kind::bf16_mixed}, 3, layout, options).norms[0];
  };
  const double expected = norm_of(1);
  CHECK(expected > 1);
  for (const std::uint64_t tensors : {2U, 5U, 24U}) {
    CAPTURE(tensors);
    CHECK(std::abs(norm_of(tensors) - expected) <= 1e-13 * expected);
  }
}

TEST_CASE("fault_11 the norm is that of the mean gradient: 1 and 3 on four elements give 4") {
  for (const precision_kind precision : built_precisions()) {
    for (const stage_kind stage : all_stages) {
      CAPTURE(name_of(precision), name_of(stage));
      const auto report = step_with({stage, precision}, 2, four_parameters(), [](int rank) {
        return 1.0F + 2.0F * static_cast<float>(rank);
      });
      // fp16 is loss-scaled; a power of two, so the norm is exact all the same.
      CHECK(report.grad_norm == 4.0);
    }
  }
}

TEST_CASE("fault_12 replicated gradients count once in the norm") {
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    CHECK(step_with({stage, precision_kind::bf16_mixed}, 4, four_parameters(), [](int rank) {
            return 1.0F + 2.0F * static_cast<float>(rank % 2);
          }).grad_norm == 4.0);
  }
}

TEST_CASE("fault_13 squares of large gradients do not overflow") {
  // 300 squared is above fp16's largest value.
  model_layout layout({.alignment_bytes = 2});
  layout.add_tensor(layout.add_unit("unit"), "weights", {4});
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    const engine_options small_scale{.loss_scale = {.initial = 1.0}};
    const auto reports = on_ranks(
        {stage, precision_kind::fp16_mixed}, 2, layout, small_scale,
        [](any_engine& engine, int, rank_communicator&) {
          return run_step(engine, [](const tensor_info&, std::uint64_t) { return 300.0F; });
        });
    CHECK(reports[0].grad_norm == 600.0);
    CHECK_FALSE(reports[0].skipped);
  }
#ifndef ZERO_TEST_REDUCED
  model_layout large;
  large.add_tensor(large.add_unit("unit"), "weights", {128});
  const auto report =
      step_with({stage_kind::stage2, precision_kind::fp32}, 2, large, [](int) { return 1e19F; });
  CHECK(report.grad_norm == Approx(1.1313708e20).epsilon(1e-6));
  CHECK_FALSE(report.skipped);
#endif
}

TEST_CASE("fault_14 one infinity skips the step, says so, and changes nothing on any rank") {
  const model_layout layout = sample_layout();
  for (const precision_kind precision : built_precisions()) {
    for (const stage_kind stage : all_stages) {
      CAPTURE(name_of(precision), name_of(stage));
      const auto results = on_ranks(
          {stage, precision}, 3, layout, test_settings(),
          [](any_engine& engine, int rank, rank_communicator&) {
            std::vector<step_report> reports = {
                run_step(engine, [](const tensor_info&, std::uint64_t) { return 1.0F; })};
            const trained_state before = state_of(engine, {});
            std::vector<float> moments;
            const auto keep = [&](const tensor_info&, std::uint64_t, std::span<const float> v) {
              moments.insert(moments.end(), v.begin(), v.end());
            };
            engine.for_each_owned(owned_state::first_moment, keep);
            engine.for_each_owned(owned_state::second_moment, keep);
            const std::vector<float> moments_before = moments;
            reports.push_back(run_step(
                engine,
                [&](const tensor_info& info, std::uint64_t index) {
                  return rank == 1 && info.name == "block1.weight" && index == 5 ? infinity : 1.0F;
                },
                {.lr = 0.01, .clip = 1.0}));
            moments.clear();
            engine.for_each_owned(owned_state::first_moment, keep);
            engine.for_each_owned(owned_state::second_moment, keep);
            const bool is_unchanged = state_of(engine, {}) == before && moments == moments_before;
            return std::tuple(reports.back(), is_unchanged, engine.steps());
          });
      for (const auto& [report, is_unchanged, steps] : results) {
        CHECK(report.skipped);
        CHECK_FALSE(std::isfinite(report.grad_norm));
        CHECK(is_unchanged);
        CHECK(steps == 1);
      }
    }
  }
}

TEST_CASE("fault_15 a tied tensor has one gradient, one norm and one update") {
  model_layout layout({.alignment_bytes = 2});
  const unit_id unit = layout.add_unit("unit");
  const tensor_id weight = layout.add_tensor(unit, "weight", {4});
  const tensor_id tied = layout.add_tensor(unit, "tied", {4}, decay, {.tied_to = weight});
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    const auto results =
        on_ranks({stage, precision_kind::bf16_mixed}, 2, layout, {},
                 [&](any_engine& engine, int, rank_communicator&) {
                   const auto report = run_step(engine, [](const tensor_info& info, std::uint64_t) {
                     return info.name == "tied" ? 2.0F : 1.0F;
                   });
                   return std::tuple(report.grad_norm,
                                     engine.export_tensor(weight) == engine.export_tensor(tied),
                                     engine.ledger().held.optimizer);
                 });
    std::uint64_t optimizer_bytes = 0;
    for (const auto& [norm, is_same, bytes] : results) {
      CHECK(norm == 6.0);  // sqrt(4 * 3^2); counted twice it would be sqrt(4 + 16) or 8.485
      CHECK(is_same);
      optimizer_bytes += bytes;
    }
    const std::uint64_t copies = flags_of(stage).partitions_optimizer_state ? 1 : 2;
    CHECK(optimizer_bytes == copies * 4 * 12);
  }
}

TEST_CASE("fault_15 what a tied tensor adds stays when its owner adds, and the other way round") {
  model_layout layout({.alignment_bytes = 2});
  const unit_id unit = layout.add_unit("unit");
  const tensor_id weight = layout.add_tensor(unit, "weight", {4});
  const tensor_id tied = layout.add_tensor(unit, "tied", {4}, decay, {.tied_to = weight});
  for (const stage_kind stage : {stage_kind::stage0, stage_kind::stage1}) {
    for (const bool owner_first : {true, false}) {
      const tensor_id first = owner_first ? weight : tied;
      const tensor_id second = owner_first ? tied : weight;
      CAPTURE(name_of(stage), first.value);
      const auto norms = on_ranks({stage, precision_kind::bf16_mixed}, 2, layout, {},
                                  [&](any_engine& engine, int, rank_communicator&) {
                                    const auto pass = engine.train();
                                    pass->add_replicated(first, std::vector<float>(4, 1.0F));
                                    pass->add_replicated(second, std::vector<float>(4, 2.0F));
                                    pass->end();
                                    return engine.step({.lr = 0.01}).grad_norm;
                                  });
      for (const double norm : norms) CHECK(norm == 6.0);  // sqrt(4 * 3^2)
    }
  }
}

TEST_CASE("clipping scales by the norm of the mean gradient, and a small norm is left alone") {
  // SGD without momentum would show the factor directly; with AdamW the moments do.
  for (const double clip : {0.0, 1.0, 100.0}) {
    const auto moments = on_ranks(
        {stage_kind::stage2, precision_kind::bf16_mixed}, 2, four_parameters(), {},
        [&](any_engine& engine, int, rank_communicator&) {
          run_step(engine, [](const tensor_info&, std::uint64_t) { return 2.0F; },
                   {.lr = 0.01, .clip = clip});
          float moment = 0;
          engine.for_each_owned(owned_state::first_moment,
                                [&](const tensor_info&, std::uint64_t, std::span<const float> v) {
                                  moment = v.empty() ? moment : v[0];
                                });
          return moment;
        });
    // norm 4, so clip 1 leaves a gradient of 0.5; (1 - beta1) = 0.1.
    CAPTURE(clip);
    CHECK(moments[0] == Approx(clip == 1.0 ? 0.05 : 0.2).epsilon(1e-6));
  }
}
