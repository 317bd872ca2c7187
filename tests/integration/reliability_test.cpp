// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 300
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdio>
#include <limits>

#include <zero/detail/hash.hpp>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// The reliability scorecard as far as one process can show it. Full counts with ZERO_FULL=1, else
// a tenth, drawn with a fixed seed.

namespace {

constexpr std::uint64_t seed = 20261129;

std::uint64_t tenth_of(std::uint64_t count) {
  return full_counts() ? count : (count + 9) / 10;
}

std::uint64_t draw(std::uint64_t index, std::uint64_t what, std::uint64_t limit) {
  return detail::hasher{}.add(seed).add(index).add(what).value() % limit;
}

engine_choice adamw_with(stage_kind stage, precision_kind precision) {
  return {stage, precision, optimizer_kind::adamw};
}

}  // namespace

TEST_CASE("fault_R3 an exception on one rank ends all ranks, whatever it interrupts") {
  std::printf("R3: seed %llu\n", static_cast<unsigned long long>(seed));
  // The k-th collective of the training fails on one rank: in a gather, a reduction, the message.
  constexpr int calls = 10;
  std::uint64_t cases = 0;
  for (const stage_kind stage : all_stages) {
    for (const int ranks : {2, 4}) {
      for (int call = 0; call < calls; ++call) {
        if (!full_counts() && draw(cases, 3, 4) != 0) {
          ++cases;
          continue;
        }
        ++cases;
        const int victim = static_cast<int>(draw(cases, 4, static_cast<std::uint64_t>(ranks)));
        const auto result =
            try_run_threads(ranks, long_timeout, [&](threads_communicator& threads) {
              rank_communicator communicator(threads);
              const auto engine = make_engine(adamw_with(stage, precision_kind::bf16_mixed),
                                              communicator.counter, sample_layout());
              engine->initialize(initial_values);
              if (threads.rank() == victim) {
                communicator.faults.arm(
                    {.kind = fault_kind::throw_before, .call = static_cast<std::uint64_t>(call)});
              }
              run_steps(*engine, threads.rank(), {.steps = 3});
            });
        CAPTURE(name_of(stage), ranks, call, victim);
        CHECK(result.failed_rank() == victim);
        for (int rank = 0; rank < ranks; ++rank) {
          const rank_error error = describe(result.error(rank));
          CHECK(error.kind == (rank == victim ? outcome::communicator : outcome::aborted));
        }
      }
    }
  }
}

TEST_CASE("fault_R9 ranks that disagree all get the same error before any payload moves") {
  struct disagreement {
    const char* what;
    const char* expected;
    std::function<void(model_layout&, bool, engine_choice&, engine_options&)> describe;
  };
  const auto tensor = [](model_layout& layout, std::string name,
                         std::initializer_list<std::uint64_t> shape, group_id group = decay,
                         tensor_options options = {}) {
    layout.add_tensor(layout.add_unit("unit " + name), name, shape, group, options);
  };
  const std::vector<disagreement> disagreements = {
      {"count", "tensor shapes",
       [&](auto& l, bool odd, auto&, auto&) { tensor(l, "a", {odd ? 7U : 6U}); }},
      {"shape of the same total", "tensor shapes",
       [&](auto& l, bool odd, auto&, auto&) {
         odd ? tensor(l, "a", {2, 3}) : tensor(l, "a", {3, 2});
       }},
      {"order", "names",
       [&](auto& l, bool odd, auto&, auto&) {
         tensor(l, odd ? "a" : "b", {6});
         tensor(l, odd ? "b" : "a", {6});
       }},
      {"name", "names", [&](auto& l, bool odd, auto&, auto&) { tensor(l, odd ? "a" : "x", {6}); }},
      {"trainable", "types and trainable",
       [&](auto& l, bool odd, auto&, auto&) { tensor(l, "a", {6}, decay, {.trainable = odd}); }},
      {"group", "groups",
       [&](auto& l, bool odd, auto&, auto&) { tensor(l, "a", {6}, odd ? decay : no_decay); }},
      {"group's setting", "groups",
       [&](auto& l, bool odd, auto&, auto&) {
         l.add_group({.lr_multiplier = odd ? 1.0 : 2.0, .weight_decay = {}});
         tensor(l, "a", {6});
       }},
      {"hyperparameter", "optimizer",
       [&](auto& l, bool odd, auto& c, auto&) {
         tensor(l, "a", {6});
         c.weight_decay = odd ? 0.1 : 0.2;
       }},
      {"precision", "types",
       [&](auto& l, bool odd, auto& c, auto&) {
         tensor(l, "a", {6});
         c.precision = odd ? precision_kind::bf16_mixed : precision_kind::fp16_mixed;
       }},
      {"stage", "stage and precision",
       [&](auto& l, bool odd, auto& c, auto&) {
         tensor(l, "a", {6});
         c.stage = odd ? stage_kind::stage2 : stage_kind::stage1;
       }},
      {"accumulation", "options",
       [&](auto& l, bool odd, auto&, auto& o) {
         tensor(l, "a", {6});
         o.accumulation = odd ? accumulation::none : accumulation::reduce_last;
       }},
      {"loss scale", "options",
       [&](auto& l, bool odd, auto&, auto& o) {
         tensor(l, "a", {6});
         o.loss_scale.window = odd ? 10 : 20;
       }},
      {"how tensors are cut into units", "names",
       [&](auto& l, bool odd, auto&, auto&) {
         const unit_id first = l.add_unit("first");
         const unit_id second = l.add_unit("second");
         l.add_tensor(first, "a", {6});
         l.add_tensor(odd ? first : second, "b", {6});
       }},
      {"schedule", "options",
       [&](auto& l, bool odd, auto&, auto&) {
         tensor(l, "a", {6});
         if (odd) l.use(unit_id{0});
       }},
  };
  for (const disagreement& each : disagreements) {
    for (const int ranks : {2, 4}) {
      const auto results = outcomes(ranks, long_timeout, [&](threads_communicator& threads) {
        rank_communicator communicator(threads);
        engine_choice choice = adamw_with(stage_kind::stage2, precision_kind::bf16_mixed);
        engine_options options;
        model_layout layout;
        tensor(layout, "common", {100});
        each.describe(layout, threads.rank() == ranks - 1, choice, options);
        make_engine(choice, communicator.counter, layout, options);
      });
      for (const rank_error& error : results) {
        CAPTURE(each.what, ranks, error.text);
        CHECK(error.kind == outcome::mismatch);
        CHECK(error.says("rank " + std::to_string(ranks - 1) + " differs from rank 0 in"));
        CHECK(error.says(each.expected));
        const bool names_tensor = error.says("first tensor that differs is number 1");
        const bool is_about_tensors = std::string_view(each.expected) == "tensor shapes";
        CHECK((names_tensor || !is_about_tensors));
      }
    }
  }
}

TEST_CASE("fault_R11 a non-finite gradient anywhere skips the step on all ranks, and only it") {
  const float infinity = std::numeric_limits<float>::infinity();
  // The last pair overflows when it is summed in the gradient's type.
  const std::pair<float, float> values[] = {
      {std::nanf(""), 1.0F}, {infinity, 1.0F}, {-infinity, 1.0F}, {3e38F, 3e38F}};
  model_layout layout({.alignment_bytes = 2});
  const unit_id unit = layout.add_unit("unit");
  layout.add_tensor(unit, "a", {4});
  layout.add_tensor(unit, "b", {3});
  layout.add_tensor(layout.add_unit("single"), "c", {1});
  const std::pair<const char*, std::uint64_t> positions[] = {
      {"a", 0}, {"b", 2}, {"a", 3}, {"b", 0}, {"c", 0}};
  std::uint64_t index = 0;
  std::uint64_t ran = 0;
  for (const precision_kind precision : built_precisions()) {
    for (const stage_kind stage : all_stages) {
      for (const auto& value : values) {
        for (const auto& position : positions) {
          for (const int ranks : {2, 3}) {
            if (!full_counts() && draw(index++, 11, 10) != 0) continue;
            ++ran;
            const auto run = [&](bool has_bad_step) {
              return on_ranks(
                  adamw_with(stage, precision), ranks, layout, {.loss_scale = {.initial = 4.0}},
                  [&](any_engine& engine, int rank, rank_communicator&) {
                    run_steps(engine, rank, {.steps = 1});
                    bool is_skipped = false;
                    double scale = engine.loss_scale();
                    if (has_bad_step) {
                      const auto report = run_step(engine, [&](const tensor_info& info,
                                                               std::uint64_t i) {
                        if (info.name != position.first || i != position.second) return 1.0F;
                        return rank == ranks - 1 ? value.first : rank == 0 ? value.second : 1.0F;
                      });
                      is_skipped = report.skipped;
                      scale = engine.loss_scale();
                    }
                    run_steps(engine, rank, {.steps = 1});
                    return std::tuple(is_skipped, scale, state_of(engine, {}));
                  });
            };
            const auto good = run(false);
            const auto bad = run(true);
            for (std::size_t rank = 0; rank < bad.size(); ++rank) {
              CAPTURE(name_of(precision), name_of(stage), value.first, position.first,
                      position.second, ranks, rank);
              CHECK(std::get<0>(bad[rank]));
              CHECK(std::get<1>(bad[rank]) ==
                    (precision == precision_kind::fp16_mixed ? 2.0 : 1.0));
              CHECK(std::get<2>(bad[rank]) == std::get<2>(good[rank]));
            }
          }
        }
      }
    }
  }
  std::printf("R11: seed %llu, %llu cases\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(ran));
  CHECK(ran > 20);
}

TEST_CASE("fault_R13 random delays of every collective give the synchronous bits") {
  std::printf("R13: seed %llu\n", static_cast<unsigned long long>(seed));
  const model_layout layout = sample_layout();
  training_options options;
  options.steps = 2;
  options.gradient = real_gradient;
  for (const stage_kind stage : {stage_kind::stage2, stage_kind::stage3}) {
    const engine_choice choice = adamw_with(stage, precision_kind::bf16_mixed);
    const auto expected = train(choice, 3, layout, options);
    const std::uint64_t seeds = tenth_of(500);
    for (std::uint64_t i = 0; i < seeds; ++i) {
      CAPTURE(name_of(stage), i);
      const delaying_options delays{std::chrono::microseconds(200), seed + i};
      CHECK(train(choice, 3, layout, options, test_settings(), delays) == expected);
    }
  }
}

TEST_CASE("fault_R14 random configurations equal one rank on exact sums") {
  const std::uint64_t configurations = tenth_of(2000);
  std::uint64_t many_ranks = 0;
  std::uint64_t uneven = 0;
  std::uint64_t empty = 0;
  std::uint64_t with_frozen = 0;
  std::uint64_t tied = 0;
  std::uint64_t accumulating = 0;
  const auto precisions = built_precisions();
  for (std::uint64_t i = 0; i < configurations; ++i) {
    const model_layout layout = random_layout(seed + i);
    const int ranks = 1 + static_cast<int>(draw(i, 0, 8));
    const std::uint64_t micro_batches = 1 + draw(i, 1, 3);
    const auto stage = all_stages[draw(i, 2, std::size(all_stages))];
    const auto precision = precisions[draw(i, 3, precisions.size())];
    accumulation mode = micro_batches == 1 ? accumulation::none : accumulation::reduce_last;
    if (micro_batches > 1 && flags_of(stage).partitions_optimizer_state && draw(i, 4, 2) == 0) {
      mode = accumulation::reduce_every;
    }
    training_options options;
    options.steps = 2;
    options.micro_batches = micro_batches;
    options.arguments = {.lr = 0.01, .divisor = 1.0};
    training_options alone = options;
    alone.micro_batches = 1;
    // The fold of fp16 divides by N, which is exact where all ranks have the same gradient.
    const bool divides = precision == precision_kind::fp16_mixed;
    if (divides) {
      options.gradient = [](gradient_site site) {
        site.rank = 0;
        return integer_gradient(site);
      };
    }
    alone.gradient = [&](gradient_site site) {
      float sum = 0;
      for (site.rank = 0; site.rank < (divides ? 1 : ranks); ++site.rank) {
        for (site.micro_batch = 0; site.micro_batch < micro_batches; ++site.micro_batch) {
          sum += options.gradient(site);
        }
      }
      return sum;
    };
    if (divides) options.arguments.divisor = static_cast<double>(ranks);
    const layout_traits traits = traits_of(layout, ranks);
    many_ranks += ranks > 1;
    uneven += traits.has_uneven;
    empty += traits.has_empty;
    with_frozen += traits.has_frozen;
    tied += traits.has_tied;
    accumulating += micro_batches > 1;
    const engine_options scale{.loss_scale = {.initial = 1.0}};
    engine_options settings = scale;
    settings.accumulation = mode;
    const auto state = train(adamw_with(stage, precision), ranks, layout, options, settings);
    const auto expected = train(adamw_with(stage_kind::stage0, precision), 1, layout, alone, scale);
    CAPTURE(i, ranks, micro_batches, int(mode), name_of(stage), name_of(precision));
    CHECK(state.parameter_bits == expected.parameter_bits);
    CHECK(state.values == expected.values);
  }
  std::printf(
      "R14: seed %llu, %llu configurations: N > 1 %llu, uneven %llu, zero size %llu, frozen %llu, "
      "tied %llu, k > 1 %llu\n",
      static_cast<unsigned long long>(seed), static_cast<unsigned long long>(configurations),
      static_cast<unsigned long long>(many_ranks), static_cast<unsigned long long>(uneven),
      static_cast<unsigned long long>(empty), static_cast<unsigned long long>(with_frozen),
      static_cast<unsigned long long>(tied), static_cast<unsigned long long>(accumulating));
  for (const std::uint64_t count : {many_ranks, uneven, empty, with_frozen, tied, accumulating}) {
    CHECK(count * 100 >= configurations * 15);
  }
}

TEST_CASE("fault_R15 bytes and elements equal the formulas for every stage, precision and N") {
  // The paper's numbers, computed here from Psi and the sizes alone.
  const model_layout layout = sample_layout(2);
  const std::uint64_t psi = layout.trainable_elements();
  const std::uint64_t psi_frozen = layout.frozen_elements();
  for (const precision_kind precision : built_precisions()) {
    const element_bytes bytes = bytes_of(precision, optimizer_kind::adamw);
    for (const stage_kind stage : all_stages) {
      for (int ranks = 1; ranks <= 8; ++ranks) {
        const auto ledgers = on_ranks(adamw_with(stage, precision), ranks, layout, test_settings(),
                                      [](any_engine& engine, int rank, rank_communicator&) {
                                        run_steps(engine, rank, {.steps = 2});
                                        return engine.ledger();
                                      });
        held_bytes all;
        for (const ledger& each : ledgers) {
          all.parameters += each.held.parameters;
          all.gradients += each.held.gradients;
          all.optimizer += each.held.optimizer;
        }
        const stage_flags flags = flags_of(stage);
        const std::uint64_t n = static_cast<std::uint64_t>(ranks);
        CAPTURE(name_of(precision), name_of(stage), ranks);
        CHECK(all.parameters ==
              (flags.partitions_parameters ? 1 : n) * (psi + psi_frozen) * bytes.parameter);
        CHECK(all.gradients == (flags.partitions_gradients ? 1 : n) * psi * bytes.gradient);
        CHECK(all.optimizer ==
              (flags.partitions_optimizer_state ? 1 : n) * psi * bytes.optimizer());
        const std::uint64_t moved = stage == stage_kind::stage3 ? 3 * psi + 2 * psi_frozen
                                    : stage == stage_kind::stage3_keep_gathered
                                        ? 2 * psi + psi_frozen
                                        : 2 * psi;
        for (const ledger& each : ledgers) CHECK(each.step.total() == (ranks == 1 ? 0 : moved));
      }
    }
  }
}
