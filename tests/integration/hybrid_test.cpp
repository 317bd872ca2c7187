// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 240
#include <catch2/catch.hpp>

#include <barrier>
#include <limits>
#include <vector>

#include <zero/backends/hybrid.hpp>
#include <zero/estimate.hpp>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// Shards inside groups, replicas across them: the same parameters as one flat group, the bytes of
// the group's size, and the traffic of plan and estimate, counted by meters inside the hybrid.

namespace {

using metered_threads = metered<threads_communicator>;
using grouped_threads = hybrid<metered_threads>;

constexpr stage_kind sharding_stages[] = {stage_kind::stage1, stage_kind::stage2,
                                          stage_kind::stage3, stage_kind::stage3_keep_gathered};

struct grouping {
  int groups;
  int shards;
};

engine_choice with_stage(precision_kind precision, stage_kind stage) {
  return {stage, precision, optimizer_kind::adamw};
}

/// Calls `function(engine, grouped, world_rank)` on every rank of a hybrid world.
template <class Function>
auto on_groups(const engine_choice& choice, grouping shape, const model_layout& layout,
               const engine_options& settings, hybrid_options how, Function function) {
  return run_threads(shape.groups * shape.shards, long_timeout, [&](threads_communicator& threads) {
    metered_threads world(threads);
    grouped_threads grouped(world, shape.shards, how);
    rank_communicator communicator(grouped);
    const auto engine = make_engine(choice, communicator.counter, layout, settings);
    engine->initialize(initial_values);
    return function(*engine, grouped, world, threads.rank());
  });
}

/// Empty when ledger, plan, estimate and the meters inside agree about the last step.
std::string accounting_difference(any_engine& engine, grouped_threads& grouped,
                                  const metered_threads& world, std::uint64_t micro_batches) {
  const rank_estimate estimate(engine.layout(), engine.plan().request);
  const held_bytes held = engine.ledger().held;
  const moved_elements moved = engine.ledger().step;
  const traffic_counters group = grouped.group().counters();
  const traffic_counters across = grouped.across().counters();
  std::string text;
  if (held != estimate.held()) text += "held differs from the estimate\n";
  if (held.total() != engine.plan().arena_bytes) text += "held differs from the arena\n";
  if (moved != estimate.moved(micro_batches)) text += "moved differs from the estimate\n";
  if (moved.reduce_scatter != group[collective::reduce_scatter].elements ||
      moved.all_gather != group[collective::all_gather].elements) {
    text += "the meter of the group differs\n";
  }
  // The group's meter sees padding as the engine states it, the one across sees whole shards.
  const std::uint64_t group_padding = group[collective::reduce_scatter].padding_elements +
                                      group[collective::all_gather].padding_elements;
  const std::uint64_t crossed =
      across[collective::reduce_scatter].elements + across[collective::all_gather].elements;
  if (crossed != moved.crossing + (moved.padding - group_padding)) {
    text += "the meter across the groups differs\n";
  }
  if (moved.all_reduce != world.counters()[collective::all_reduce].elements) {
    text += "the meter of the world differs\n";
  }
  if (moved.wire_bytes !=
      group.wire_bytes() + across.wire_bytes() + world.counters().wire_bytes()) {
    text += "the meters' wire bytes differ\n";
  }
  return text;
}

trained_state train_grouped(const engine_choice& choice, grouping shape, const model_layout& layout,
                            const training_options& options,
                            const engine_options& settings = test_settings(),
                            hybrid_options how = {}) {
  const auto states = on_groups(
      choice, shape, layout, settings, how,
      [&](any_engine& engine, grouped_threads& grouped, metered_threads& world, int rank) {
        training_options all_but_last = options;
        --all_but_last.steps;
        auto reports = run_steps(engine, rank, all_but_last);
        world.reset();
        grouped.group().reset();
        grouped.across().reset();
        for (std::uint64_t m = 0; m < options.micro_batches; ++m) {
          run_micro_batch(engine, rank, options, {m, options.micro_batches}, all_but_last.steps);
        }
        reports.push_back(engine.step(options.arguments));
        const std::string difference =
            accounting_difference(engine, grouped, world, options.micro_batches);
        if (!difference.empty()) throw error(name_of(choice) + ": " + difference);
        return state_of(engine, reports);
      });
  for (const trained_state& state : states) {
    if (state != states.front()) throw error(name_of(choice) + ": the ranks' states differ");
  }
  return states.front();
}

}  // namespace

TEST_CASE("groups of a power of two train the bits of the flat run") {
  const model_layout layout = sample_layout();
  training_options options;
  options.gradient = real_gradient;
  for (const precision_kind precision : built_precisions()) {
    for (const grouping shape : {grouping{2, 2}, {4, 2}, {2, 4}, {2, 1}, {1, 4}}) {
      const int ranks = shape.groups * shape.shards;
      const trained_state flat =
          train(with_stage(precision, stage_kind::stage1), ranks, layout, options);
      for (const stage_kind stage : sharding_stages) {
        CAPTURE(name_of(precision), name_of(stage), shape.groups, shape.shards);
        const trained_state grouped =
            train_grouped(with_stage(precision, stage), shape, layout, options);
        CHECK(grouped.parameter_bits == flat.parameter_bits);
        CHECK(grouped.values == flat.values);
      }
    }
  }
}

TEST_CASE("groups of any size train the bits of the flat run where sums are exact") {
  const model_layout layout = sample_layout();
  const training_options options;
  for (const grouping shape : {grouping{2, 3}, {3, 2}, {3, 1}, {5, 1}, {2, 4}}) {
    const int ranks = shape.groups * shape.shards;
    for (const bool rounds : {false, true}) {
      for (const stage_kind stage : sharding_stages) {
        const engine_choice choice = with_stage(precision_kind::bf16_mixed, stage);
        CAPTURE(name_of(stage), shape.groups, shape.shards, rounds);
        const trained_state flat = train(choice, ranks, layout, options);
        const trained_state grouped = train_grouped(choice, shape, layout, options, test_settings(),
                                                    {.round_before_crossing = rounds});
        CHECK(grouped.parameter_bits == flat.parameter_bits);
        CHECK(grouped.values == flat.values);
      }
    }
  }
}

TEST_CASE("groups accumulate micro-batches as the flat run does") {
  const model_layout layout = sample_layout();
  training_options options;
  options.micro_batches = 3;
  for (const accumulation mode : {accumulation::reduce_last, accumulation::reduce_every}) {
    for (const stage_kind stage : sharding_stages) {
      const engine_choice choice = with_stage(precision_kind::bf16_mixed, stage);
      CAPTURE(name_of(stage), static_cast<int>(mode));
      const trained_state flat = train(choice, 6, layout, options, test_settings(mode));
      CHECK(train_grouped(choice, {2, 3}, layout, options, test_settings(mode)) == flat);
      CHECK(train_grouped(choice, {6, 1}, layout, options, test_settings(mode)).values ==
            flat.values);
    }
  }
}

TEST_CASE("the norm of replicas counts once") {
  const model_layout layout = sample_layout();
  training_options options;
  options.gradient = real_gradient;
  options.arguments = {.lr = 0.01, .clip = 0.5};
  for (const stage_kind stage : sharding_stages) {
    CAPTURE(name_of(stage));
    const engine_choice choice = with_stage(precision_kind::bf16_mixed, stage);
    const trained_state flat = train(choice, 4, layout, options);
    const trained_state grouped = train_grouped(choice, {2, 2}, layout, options);
    for (std::size_t step = 0; step < flat.norms.size(); ++step) {
      CHECK(grouped.norms[step] == Approx(flat.norms[step]).epsilon(1e-13));
    }
  }
}

TEST_CASE("a group holds the formula's bytes with N replaced by its size") {
  const model_layout layout = sample_layout();
  const std::uint64_t trainable = layout.trainable_elements();
  const auto held = on_groups(
      with_stage(precision_kind::bf16_mixed, stage_kind::stage3), {3, 2}, layout, test_settings(),
      {},
      [](any_engine& engine, auto&, auto&, int) { return engine.ledger().held.model_states(); });
  const std::uint64_t frozen_bytes = 2 * layout.frozen_elements();
  for (std::size_t group = 0; group < 3; ++group) {
    CHECK(held[2 * group] + held[2 * group + 1] == 16 * trainable + frozen_bytes);
  }
}

TEST_CASE("a gradient that is not finite in one group skips the step in all") {
  const auto reports =
      on_groups(with_stage(precision_kind::bf16_mixed, stage_kind::stage2), {2, 2}, sample_layout(),
                test_settings(), {}, [](any_engine& engine, auto&, auto&, int rank) {
                  return run_step(engine, [rank](const tensor_info&, std::uint64_t index) {
                    return rank == 3 && index == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
                  });
                });
  for (const step_report& report : reports) CHECK(report.skipped);
}

TEST_CASE("fault_R9 ranks of different groups that disagree all get the same error") {
  SECTION("about the arguments of a step") {
    const auto errors = on_groups(
        with_stage(precision_kind::bf16_mixed, stage_kind::stage2), {2, 2}, sample_layout(),
        test_settings(), {}, [](any_engine& engine, auto&, auto&, int rank) {
          run_micro_batch(engine, [](const tensor_info&, std::uint64_t) { return 1.0F; });
          return error_of([&] { engine.step({.lr = rank == 3 ? 0.1 : 0.01}); });
        });
    for (const rank_error& error : errors) {
      CHECK(error.kind == outcome::mismatch);
      CHECK(error.says("different arguments"));
    }
  }
  // Rank 3 differs from its own group, or the groups differ from each other.
  for (const bool whole_group : {false, true}) {
    const auto errors = run_threads(4, long_timeout, [&](threads_communicator& threads) {
      metered_threads world(threads);
      grouped_threads grouped(world, 2);
      rank_communicator communicator(grouped);
      const bool differs = whole_group ? threads.rank() >= 2 : threads.rank() == 3;
      model_layout layout;
      const unit_id unit = layout.add_unit("unit");
      layout.add_tensor(unit, "weight", {differs ? 6U : 3U, differs ? 2U : 4U});
      return error_of([&] {
        make_engine(with_stage(precision_kind::bf16_mixed, stage_kind::stage3),
                    communicator.counter, layout);
      });
    });
    for (const rank_error& error : errors) {
      INFO(whole_group << " " << error.text);
      CHECK(error.kind == outcome::mismatch);
      CHECK(error.says("tensor shapes"));
    }
  }
}

TEST_CASE("fault_R3 a rank that throws in one group ends all groups") {
  // The peers wait in their groups, across them, or all together.
  for (const collective operation :
       {collective::reduce_scatter, collective::all_gather, collective::all_reduce}) {
    // Nobody returns before all have failed: it is not the end of a thread that tells the others.
    std::barrier all_failed(4);
    const auto errors = run_threads(4, long_timeout, [&](threads_communicator& threads) {
      metered_threads world(threads);
      grouped_threads grouped(world, 2);
      rank_communicator communicator(grouped);
      const auto engine = make_engine(with_stage(precision_kind::bf16_mixed, stage_kind::stage3),
                                      communicator.counter, sample_layout());
      engine->initialize(initial_values);
      if (threads.rank() == 1) {
        communicator.faults.arm({.kind = fault_kind::throw_before, .operation = operation});
      }
      const rank_error error = error_of([&] { run_steps(*engine, threads.rank(), {}); });
      all_failed.arrive_and_wait();
      return error;
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
      INFO(name_of(operation) << ", rank " << rank << ": " << errors[rank].text);
      CHECK(errors[rank].kind == (rank == 1 ? outcome::communicator : outcome::aborted));
    }
  }
}

TEST_CASE("a group size that does not divide the ranks, or a stage without shards, is refused") {
  const auto texts = run_threads(6, long_timeout, [](threads_communicator& threads) {
    std::string text;
    for (const int shards : {0, -1, 4, 5, 12}) {
      const rank_error error = error_of([&] { hybrid refused(threads, shards); });
      if (error.kind != outcome::usage || !error.says("does not divide the 6 ranks")) {
        text += error.text + "\n";
      }
    }
    hybrid grouped(threads, 3);
    rank_communicator communicator(grouped);
    const rank_error error = error_of([&] {
      make_engine(with_stage(precision_kind::bf16_mixed, stage_kind::stage0), communicator.counter,
                  sample_layout());
    });
    if (error.kind != outcome::usage || !error.says("stage 0")) text += error.text;
    return text;
  });
  for (const std::string& text : texts) CHECK(text == "");
}

TEST_CASE("a hybrid without scratch says what it needs, and shards must divide") {
  const auto texts = run_threads(4, long_timeout, [](threads_communicator& threads) {
    hybrid grouped(threads, 2);
    std::vector<bfloat16> in(8);
    std::vector<bfloat16> out(4);
    const auto reduce = [&](std::uint64_t shard_elements) {
      return error_of([&] {
        grouped.reduce_scatter(range<const bfloat16, partial>(in.data(), 2 * shard_elements),
                               range<bfloat16, shard>(out.data(), shard_elements));
      });
    };
    std::string text;
    if (const auto error = reduce(4); error.kind != outcome::usage || !error.says("16 bytes")) {
      text += error.text;
    }
    std::vector<std::byte> scratch(64);
    grouped.lend_scratch(scratch);
    if (const auto error = reduce(4); error.kind != outcome::returned) text += error.text;
    return text;
  });
  for (const std::string& text : texts) CHECK(text == "");
}
