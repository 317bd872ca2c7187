// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// Rows of the fault list about mixed precision, optimizer states, groups and frozen tensors.

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

model_layout one_vector(std::uint64_t elements, group_id group = decay) {
  model_layout layout({.alignment_bytes = 2});
  layout.add_tensor(layout.add_unit("unit"), "weights", {elements}, group);
  return layout;
}

float one(const tensor_info&, std::uint64_t) {
  return 1.0F;
}

}  // namespace

TEST_CASE("fault_25 an overflow on one rank is every rank's, one without a shard included") {
  // One element and three ranks: ranks 1 and 2 own padding only.
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    const auto reports = on_ranks({stage, precision_kind::fp16_mixed}, 3, one_vector(1), {},
                                  [](any_engine& engine, int rank, rank_communicator&) {
                                    const auto report =
                                        run_step(engine, [&](const tensor_info&, std::uint64_t) {
                                          return rank == 1 ? infinity : 1.0F;
                                        });
                                    return std::pair(report, engine.loss_scale());
                                  });
    for (const auto& [report, scale] : reports) {
      CHECK(report.skipped);
      CHECK(report.loss_scale == 65536.0);
      CHECK(scale == 32768.0);
    }
  }
}

TEST_CASE("fault_26 the loss scale stops at its minimum, counts, and recovers") {
  const engine_options options{.loss_scale = {.initial = 65536.0, .window = 3}};
  const auto results =
      on_ranks({stage_kind::stage2, precision_kind::fp16_mixed}, 2, one_vector(5), options,
               [](any_engine& engine, int, rank_communicator&) {
                 for (int i = 0; i < 20; ++i) {
                   run_step(engine, [](const tensor_info&, std::uint64_t) { return infinity; });
                 }
                 const double lowest = engine.loss_scale();
                 const std::uint64_t at_minimum = engine.overflows_at_minimum_scale();
                 for (int i = 0; i < 6; ++i) run_step(engine, one);
                 return std::tuple(lowest, at_minimum, engine.loss_scale(), engine.skipped_steps());
               });
  for (const auto& [lowest, at_minimum, recovered, skipped] : results) {
    CHECK(lowest == 1.0);
    CHECK(at_minimum == 4);  // 16 halvings reach 1, four more overflows meet it there
    CHECK(recovered == 4.0);
    CHECK(skipped == 20);
  }
}

TEST_CASE("fault_27 a skipped step is reported on every rank") {
  for (const stage_kind stage : all_stages) {
    const auto reports = on_ranks({stage, precision_kind::bf16_mixed}, 3, one_vector(7), {},
                                  [](any_engine& engine, int rank, rank_communicator&) {
                                    return run_step(engine, [&](const tensor_info&, std::uint64_t) {
                                      return rank == 2 ? std::nanf("") : 1.0F;
                                    });
                                  });
    for (const step_report& report : reports) {
      CHECK(report.skipped);
      CHECK(report.skipped_steps == 1);
      CHECK(report.step == 0);
    }
  }
}

TEST_CASE("fault_29 masters move by less than a bf16 step, and the parameter follows") {
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    const auto results = on_ranks(
        {stage, precision_kind::bf16_mixed, optimizer_kind::adamw, 0.0}, 2, one_vector(6), {},
        [](any_engine& engine, int, rank_communicator&) {
          engine.import_tensor(tensor_id{0}, std::vector<float>(6, 1.0F), same_on_all_ranks);
          for (int i = 0; i < 100; ++i) run_step(engine, one, {.lr = 1e-3});
          return std::pair(engine.export_tensor(tensor_id{0})[3],
                           engine.export_parameter_bits(tensor_id{0})[3]);
        });
    CHECK(results[0].first == Approx(0.9).epsilon(1e-5));
    CHECK(bfloat16::from_bits(static_cast<std::uint16_t>(results[0].second)) ==
          bfloat16{0.8984375F});
  }
}

TEST_CASE("fault_31 the step count advances once per step, not once per unit") {
  model_layout layout;
  for (std::uint64_t u = 0; u < 4; ++u) {
    layout.add_tensor(layout.add_unit("unit" + std::to_string(u)), "t" + std::to_string(u), {40});
  }
  for (const stage_kind stage : all_stages) {
    const auto worst =
        on_ranks({stage, precision_kind::bf16_mixed, optimizer_kind::adamw, 0.0}, 3, layout, {},
                 [](any_engine& engine, int, rank_communicator&) {
                   float largest = 0;
                   for (int step = 0; step < 10; ++step) {
                     std::vector<std::vector<float>> before;
                     for (std::uint32_t t = 0; t < 4; ++t)
                       before.push_back(engine.export_tensor({t}));
                     run_step(engine, one, {.lr = 0.1});
                     for (std::uint32_t t = 0; t < 4; ++t) {
                       const auto after = engine.export_tensor({t});
                       for (std::size_t i = 0; i < after.size(); ++i) {
                         largest = std::max(largest, std::abs(before[t][i] - after[i] - 0.1F));
                       }
                     }
                   }
                   return largest;
                 });
    CAPTURE(name_of(stage));
    CHECK(worst[0] < 1e-6F);  // a bias correction of the wrong step would show 0.04
  }
}

TEST_CASE("fault_33 looking at the states before the first step changes nothing") {
  const auto run = [](bool looks) {
    return on_ranks({stage_kind::stage3, precision_kind::bf16_mixed}, 2, sample_layout(), {},
                    [&](any_engine& engine, int rank, rank_communicator&) {
                      if (looks) {
                        for (const owned_state which :
                             {owned_state::parameters, owned_state::masters, owned_state::gradients,
                              owned_state::first_moment, owned_state::second_moment}) {
                          engine.for_each_owned(which, [](auto&&...) {});
                        }
                        engine.export_tensor(tensor_id{0});
                      }
                      return state_of(engine, run_steps(engine, rank, {}));
                    });
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("fault_35 groups with their own decay do not bleed over shard borders") {
  model_layout layout({.alignment_bytes = 2});
  const group_id strong = layout.add_group({.lr_multiplier = {}, .weight_decay = 0.1});
  const unit_id unit = layout.add_unit("unit");
  const tensor_id a = layout.add_tensor(unit, "a", {5}, strong);
  const tensor_id b = layout.add_tensor(unit, "b", {6}, no_decay);
  for (const stage_kind stage : all_stages) {
    const auto results = on_ranks(
        {stage, precision_kind::bf16_mixed}, 3, layout, {},
        [&](any_engine& engine, int, rank_communicator&) {
          const auto a_before = engine.export_tensor(a);
          const auto b_before = engine.export_tensor(b);
          run_step(engine, [](const tensor_info&, std::uint64_t) { return 0.0F; }, {.lr = 0.5});
          const auto a_after = engine.export_tensor(a);
          bool decays = true;
          for (std::size_t i = 0; i < 5; ++i) {
            decays &= std::abs(a_after[i] - a_before[i] * 0.95F) < 1e-6F && a_before[i] != 0;
          }
          return std::pair(decays, engine.export_tensor(b) == b_before);
        });
    for (const auto& [decays, is_unchanged] : results) {
      CAPTURE(name_of(stage));
      CHECK(decays);
      CHECK(is_unchanged);
    }
  }
}

TEST_CASE("a group's learning rate can be set for one step") {
  model_layout layout({.alignment_bytes = 2});
  const group_id own = layout.add_group({.lr_multiplier = 0.5, .weight_decay = 0.0});
  const unit_id unit = layout.add_unit("unit");
  const tensor_id a = layout.add_tensor(unit, "a", {3}, own);
  const tensor_id b = layout.add_tensor(unit, "b", {3}, no_decay);
  const auto moved_by = [&](const step_arguments& arguments) {
    return on_ranks({stage_kind::stage3, precision_kind::bf16_mixed}, 2, layout, {},
                    [&](any_engine& engine, int, rank_communicator&) {
                      const float a0 = engine.export_tensor(a)[0];
                      const float b0 = engine.export_tensor(b)[0];
                      run_step(engine, one, arguments);
                      return std::pair(a0 - engine.export_tensor(a)[0],
                                       b0 - engine.export_tensor(b)[0]);
                    })[0];
  };
  const auto by_multiplier = moved_by({.lr = 0.1});
  CHECK(by_multiplier.first == Approx(0.05).epsilon(1e-4));
  CHECK(by_multiplier.second == Approx(0.1).epsilon(1e-4));
  const group_rate rates[] = {{own, 0.2}};
  const auto by_step = moved_by({.lr = 0.1, .group_lr = rates});
  CHECK(by_step.first == Approx(0.2).epsilon(1e-4));
  CHECK(by_step.second == Approx(0.1).epsilon(1e-4));
}

TEST_CASE("fault_38 frozen tensors keep their bits and hold no gradient or optimizer state") {
  model_layout layout({.alignment_bytes = 2});
  const unit_id unit = layout.add_unit("unit");
  layout.add_tensor(unit, "trained", {10});
  const tensor_id fixed = layout.add_tensor(unit, "fixed", {17}, decay, frozen);
  layout.add_tensor(unit, "trained_too", {3});
  for (const stage_kind stage : all_stages) {
    const auto results = on_ranks({stage, precision_kind::bf16_mixed, optimizer_kind::adamw, 0.5},
                                  2, layout, {}, [&](any_engine& engine, int, rank_communicator&) {
                                    const auto before = engine.export_parameter_bits(fixed);
                                    for (int i = 0; i < 3; ++i) run_step(engine, one, {.lr = 0.1});
                                    return std::pair(engine.export_parameter_bits(fixed) == before,
                                                     engine.ledger().held);
                                  });
    held_bytes all;
    for (const auto& [is_unchanged, held] : results) {
      CAPTURE(name_of(stage));
      CHECK(is_unchanged);
      all.parameters += held.parameters;
      all.gradients += held.gradients;
      all.optimizer += held.optimizer;
    }
    const stage_flags flags = flags_of(stage);
    CHECK(all.parameters == (flags.partitions_parameters ? 1 : 2) * 30 * 2);
    CHECK(all.gradients == (flags.partitions_gradients ? 1 : 2) * 13 * 2);
    CHECK(all.optimizer == (flags.partitions_optimizer_state ? 1 : 2) * 13 * 12);
  }
}

TEST_CASE("fault_42 ranks that start from different seeds train one model") {
  for (const stage_kind stage : all_stages) {
    const auto states = run_threads(3, long_timeout, [&](threads_communicator& threads) {
      rank_communicator communicator(threads);
      const auto engine =
          make_engine({stage, precision_kind::bf16_mixed}, communicator.counter, sample_layout());
      engine->initialize([&](const tensor_info& info, std::uint64_t first, std::span<float> v) {
        initial_values(info, first, v);
        for (float& value : v) value += static_cast<float>(threads.rank());
      });
      return state_of(*engine, run_steps(*engine, threads.rank(), {}));
    });
    CAPTURE(name_of(stage));
    CHECK(states[1] == states[0]);
    CHECK(states[2] == states[0]);
  }
}

TEST_CASE("fault_42 imported values are one rank's, or compared") {
  const model_layout layout = one_vector(37);
  for (const stage_kind stage : all_stages) {
    const auto results = on_ranks(
        {stage, precision_kind::bf16_mixed}, 3, layout, {},
        [](any_engine& engine, int rank, rank_communicator&) {
          std::vector<float> mine(37, static_cast<float>(rank + 1));
          engine.import_tensor({0}, mine, from_rank{2});
          const bool has_rank_2 = engine.export_tensor({0}) == std::vector<float>(37, 3.0F);
          const auto differing =
              error_of([&] { engine.import_tensor({0}, mine, same_on_all_ranks); });
          const bool is_untouched = engine.export_tensor({0}) == std::vector<float>(37, 3.0F);
          return std::tuple(has_rank_2, differing.kind, is_untouched);
        });
    for (const auto& [has_rank_2, kind, is_untouched] : results) {
      CAPTURE(name_of(stage));
      CHECK(has_rank_2);
      CHECK(kind == outcome::mismatch);
      CHECK(is_untouched);
    }
  }
}

TEST_CASE("fault_53 the estimate is exact for every stage, precision, N and mode") {
  for (const precision_kind precision : built_precisions()) {
    for (const stage_kind stage : all_stages) {
      for (int ranks = 1; ranks <= 8; ++ranks) {
        for (const accumulation mode :
             {accumulation::none, accumulation::reduce_last, accumulation::reduce_every}) {
          if (mode == accumulation::reduce_every && stage == stage_kind::stage0) continue;
          const engine_choice choice{stage, precision};
          const auto differences =
              run_threads(ranks, long_timeout, [&](threads_communicator& threads) {
                rank_communicator communicator(threads);
                counting_memory memory;
                engine_options settings = test_settings(mode);
                settings.memory = &memory;
                const auto engine =
                    make_engine(choice, communicator.counter, sample_layout(2), settings);
                engine->initialize(initial_values);
                communicator.counter.reset();
                run_steps(*engine, threads.rank(), {.steps = 1});
                std::string text =
                    accounting_difference(*engine, choice, communicator.counter, settings, 1);
                if (memory.held_bytes() != engine->ledger().held.total()) {
                  text += "the memory resource handed out " + std::to_string(memory.held_bytes());
                }
                return text;
              });
          for (const std::string& difference : differences) {
            CAPTURE(name_of(choice), ranks, int(mode));
            CHECK(difference == "");
          }
        }
      }
    }
  }
}

TEST_CASE("fault_54 parameters are gathered exactly as often as the stage says") {
  const model_layout layout = sample_layout();
  const std::uint64_t psi = layout.trainable_elements();
  const std::uint64_t psi_frozen = layout.frozen_elements();
  for (const stage_kind stage : all_stages) {
    const auto moved = on_ranks({stage, precision_kind::bf16_mixed}, 4, layout, {},
                                [](any_engine& engine, int rank, rank_communicator&) {
                                  return run_steps(engine, rank, {})[2].moved;
                                });
    CAPTURE(name_of(stage));
    const bool gathers_twice = stage == stage_kind::stage3;
    const bool gathers_frozen = flags_of(stage).partitions_parameters;
    CHECK(moved[0].total() == (gathers_twice ? 3 : 2) * psi + (gathers_twice    ? 2
                                                               : gathers_frozen ? 1
                                                                                : 0) *
                                                                  psi_frozen);
  }
}

TEST_CASE("fault_55 stages agree after 100 steps, with accumulation 1, 2 and 3") {
  model_layout layout;
  layout.add_tensor(layout.add_unit("first"), "a", {9, 11});
  layout.add_tensor(layout.add_unit("second"), "b", {77}, no_decay);
  training_options options;
  options.steps = 100;
  options.gradient = real_gradient;
  for (const std::uint64_t micro_batches : {1U, 2U, 3U}) {
    options.micro_batches = micro_batches;
    const engine_options settings = test_settings(accumulation::reduce_last);
    const auto expected =
        train({stage_kind::stage0, precision_kind::bf16_mixed}, 3, layout, options, settings);
    for (const stage_kind stage : all_stages) {
      CAPTURE(name_of(stage), micro_batches);
      CHECK(train({stage, precision_kind::bf16_mixed}, 3, layout, options, settings) == expected);
    }
  }
}
