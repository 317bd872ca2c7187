// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
#include <catch2/catch.hpp>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// Rows of the fault list about partitions, padding and units: shapes that other systems got wrong.

namespace {

constexpr precision_kind precision = precision_kind::bf16_mixed;

/// One unit per size, a vector each.
model_layout vectors(const std::vector<std::uint64_t>& sizes, std::uint64_t alignment_bytes) {
  model_layout layout({.alignment_bytes = alignment_bytes});
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const unit_id unit = layout.add_unit("unit" + std::to_string(i));
    layout.add_tensor(unit, "vector" + std::to_string(i), {sizes[i]});
  }
  return layout;
}

/// Trains on one rank whose gradient is the sum over `ranks`: integers, so the sums are exact and
/// every N must give the same bits. Both divide by one.
trained_state summed_reference(const model_layout& layout, int ranks, std::uint64_t steps) {
  training_options options;
  options.steps = steps;
  options.arguments = {.lr = 0.01, .divisor = 1.0};
  options.gradient = [ranks](gradient_site site) {
    float sum = 0;
    for (site.rank = 0; site.rank < ranks; ++site.rank) sum += integer_gradient(site);
    return sum;
  };
  return train({stage_kind::stage0, precision}, 1, layout, options);
}

void check_against_one_rank(const model_layout& layout, int ranks, std::uint64_t steps) {
  training_options options;
  options.steps = steps;
  options.arguments = {.lr = 0.01, .divisor = 1.0};
  const trained_state expected = summed_reference(layout, ranks, steps);
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage), ranks);
    const trained_state state = train({stage, precision}, ranks, layout, options);
    CHECK(state.parameter_bits == expected.parameter_bits);
    CHECK(state.values == expected.values);
  }
}

}  // namespace

TEST_CASE("fault_01 a unit with fewer elements than ranks trains, padding-only ranks own nothing") {
  const model_layout layout = vectors({3}, 2);
  check_against_one_rank(layout, 8, 5);
  const auto owned =
      on_ranks({stage_kind::stage3, precision}, 8, layout, {},
               [](any_engine& engine, int, rank_communicator&) { return engine.ledger().held; });
  for (int rank = 0; rank < 8; ++rank) {
    CAPTURE(rank);
    const held_bytes& held = owned[static_cast<std::size_t>(rank)];
    CHECK(held.parameters == (rank < 3 ? 2U : 0U));
    CHECK(held.optimizer == (rank < 3 ? 12U : 0U));
  }
}

TEST_CASE("fault_02 tensors without elements take part like any other") {
  for (const std::uint64_t alignment : {2U, 64U}) {
    check_against_one_rank(vectors({8, 0, 24}, alignment), 2, 3);
    check_against_one_rank(vectors({0}, alignment), 2, 3);
    check_against_one_rank(vectors({0, 0, 1}, alignment), 4, 3);
  }
}

TEST_CASE("fault_03 sizes that no N divides") {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    check_against_one_rank(vectors({7, 13, 101}, 2), ranks, 3);
    check_against_one_rank(vectors({7, 13, 101}, 64), ranks, 3);
  }
}

TEST_CASE("fault_04 units at and around a power of two are all updated") {
  const model_layout layout = vectors({1023, 1024, 1025, 1, 2048}, 64);
  check_against_one_rank(layout, 3, 2);
  const auto moved =
      on_ranks({stage_kind::stage2, precision}, 3, layout, {},
               [](any_engine& engine, int, rank_communicator&) {
                 std::vector<std::vector<float>> before;
                 for (std::uint32_t t = 0; t < 5; ++t)
                   before.push_back(engine.export_tensor(tensor_id{t}));
                 run_step(engine, [](const tensor_info&, std::uint64_t) { return 1.0F; });
                 std::uint64_t unchanged = 0;
                 for (std::uint32_t t = 0; t < 5; ++t) {
                   const std::vector<float> after = engine.export_tensor(tensor_id{t});
                   for (std::size_t i = 0; i < after.size(); ++i)
                     unchanged += after[i] == before[t][i];
                 }
                 return unchanged;
               });
  for (const std::uint64_t unchanged : moved) CHECK(unchanged == 0);
}

TEST_CASE("fault_05 alignments that cannot work are refused, extreme ones do") {
  for (const std::uint64_t bad : {0U, 1U, 3U, 48U, 100U}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(model_layout({.alignment_bytes = bad}), usage_error);
  }
  // Far above the model: everything is padding, and still right.
  check_against_one_rank(vectors({100, 101}, 2), 3, 2);
  check_against_one_rank(vectors({100, 101}, 65536), 3, 2);
}

TEST_CASE("fault_06 every step issues the planned collectives, the first like the tenth") {
  const model_layout layout = sample_layout();
  for (const stage_kind stage : all_stages) {
    const auto logs = on_ranks({stage, precision}, 3, layout, {},
                               [](any_engine& engine, int rank, rank_communicator& communicator) {
                                 std::vector<std::vector<logged_collective>> steps;
                                 for (std::uint64_t step = 0; step < 10; ++step) {
                                   communicator.counter.reset();
                                   communicator.counter.start_log(256);
                                   run_micro_batch(engine, rank, {}, {}, step);
                                   engine.step({.lr = 0.01});
                                   const auto log = communicator.counter.log();
                                   steps.emplace_back(log.begin(), log.end());
                                 }
                                 return steps;
                               });
    const plan_request request{flags_of(stage), bytes_of(precision, optimizer_kind::adamw), 3, 0,
                               accumulation::none};
    std::vector<logged_collective> planned;
    for (const planned_collective& call : step_collectives(layout, make_plan(layout, request))) {
      planned.push_back({call.what == planned_collective::operation::all_gather
                             ? collective::all_gather
                             : collective::reduce_scatter,
                         call.elements});
    }
    for (const auto& steps : logs) {
      for (auto log : steps) {
        // The message of the step is the one collective that is not about a unit.
        std::erase_if(log, [](const logged_collective& call) {
          return call.operation == collective::all_reduce;
        });
        CAPTURE(name_of(stage));
        CHECK(log == planned);
      }
    }
  }
}

TEST_CASE("fault_10 the stage that was asked for is the one that runs, whatever the sizes") {
  const model_layout layout = vectors({3, 7, 11}, 2);
  for (const stage_kind stage : all_stages) {
    for (const int ranks : {1, 2, 5}) {
      const auto held = on_ranks(
          {stage, precision}, ranks, layout, {},
          [](any_engine& engine, int, rank_communicator&) { return engine.ledger().held; });
      std::uint64_t model_states = 0;
      for (const held_bytes& rank : held) model_states += rank.model_states();
      const stage_flags flags = flags_of(stage);
      const std::uint64_t n = static_cast<std::uint64_t>(ranks);
      const std::uint64_t psi = 21;
      CAPTURE(name_of(stage), ranks);
      CHECK(model_states == psi * (2 * (flags.partitions_parameters ? 1 : n) +
                                   2 * (flags.partitions_gradients ? 1 : n) +
                                   12 * (flags.partitions_optimizer_state ? 1 : n)));
    }
  }
}
