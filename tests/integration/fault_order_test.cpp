// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
#include <catch2/catch.hpp>

#include <algorithm>
#include <thread>

#include <zero/estimate.hpp>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// Rows of the fault list about overlap, order and ranks that do different things.

namespace {

constexpr precision_kind precision = precision_kind::bf16_mixed;

model_layout many_units(std::uint64_t units) {
  model_layout layout;
  for (std::uint64_t u = 0; u < units; ++u) {
    layout.add_tensor(layout.add_unit("unit" + std::to_string(u)), "t" + std::to_string(u),
                      {37 + u});
  }
  return layout;
}

}  // namespace

TEST_CASE("fault_39 no buffer is reused while a collective may still use it") {
  // 40 units over two shared places; each collective starts up to 5 ms late on each rank.
  const model_layout layout = many_units(40);
  training_options options;
  options.steps = 1;
  options.gradient = real_gradient;
  const std::uint64_t seeds = full_counts() ? 100 : 4;
  for (const stage_kind stage : {stage_kind::stage2, stage_kind::stage3}) {
    const auto expected = train({stage, precision}, 2, layout, options);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      CAPTURE(name_of(stage), seed);
      const delaying_options delays{std::chrono::milliseconds(full_counts() ? 5 : 1), seed};
      CHECK(train({stage, precision}, 2, layout, options, test_settings(), delays) == expected);
    }
  }
}

TEST_CASE("fault_40 a rank that takes another path gets an error, and so do its peers") {
  for (const stage_kind stage : all_stages) {
    const auto results = outcomes(2, long_timeout, [&](threads_communicator& threads) {
      rank_communicator communicator(threads);
      const auto engine = make_engine({stage, precision}, communicator.counter, many_units(3));
      engine->initialize(initial_values);
      // Rank 1 evaluates where rank 0 trains: at stage 3 both gather, then the paths part.
      if (threads.rank() == 1) {
        const auto pass = engine->evaluate();
        for (const unit_id use : engine->layout().uses()) pass->forward(use)->finish();
        pass->end();
      }
      run_steps(*engine, threads.rank(), {.steps = 1});
      // Stages 0 to 2 move nothing in an evaluation, so there is nothing to disagree about.
      if (!flags_of(stage).partitions_parameters) throw usage_error("stages agree");
    });
    CAPTURE(name_of(stage), results[0].text, results[1].text);
    if (flags_of(stage).partitions_parameters) {
      for (const rank_error& error : results) {
        const bool is_typed = error.kind == outcome::mismatch || error.kind == outcome::aborted;
        CHECK(is_typed);
      }
      CHECK((results[0].says("reduce_scatter") || results[1].says("reduce_scatter")));
    } else {
      CHECK(results[0].says("stages agree"));
    }
  }
}

TEST_CASE("fault_41 a rank that stops early does not leave its peers waiting") {
  for (const stage_kind stage : all_stages) {
    const auto results = outcomes(3, long_timeout, [&](threads_communicator& threads) {
      rank_communicator communicator(threads);
      const auto engine = make_engine({stage, precision}, communicator.counter, many_units(3));
      engine->initialize(initial_values);
      run_steps(*engine, threads.rank(), {.steps = threads.rank() == 1 ? 2U : 3U});
    });
    CAPTURE(name_of(stage), results[0].text);
    CHECK(results[1].kind == outcome::returned);
    CHECK(results[0].kind == outcome::aborted);
    CHECK(results[2].kind == outcome::aborted);
    CHECK(results[0].says("left"));
  }
}

TEST_CASE("a late rank is waited for until the timeout, and the error says who is missing") {
  const auto results = outcomes(2, short_timeout, [&](threads_communicator& threads) {
    rank_communicator communicator(threads);
    const auto engine =
        make_engine({stage_kind::stage2, precision}, communicator.counter, many_units(2));
    engine->initialize(initial_values);
    if (threads.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    run_steps(*engine, threads.rank(), {.steps = 1});
  });
  CAPTURE(results[0].text);
  CHECK(results[0].kind == outcome::timeout);
  CHECK(results[0].where.peer == 1);
  CHECK(results[0].where.operation == "reduce_scatter");
  CHECK(results[1].kind != outcome::returned);
}

TEST_CASE("skipped units take part with zeros when that is asked for") {
  // Rank 1 leaves out the middle unit in both traversals.
  const engine_options settings{.skipped_units = skipped_units::zeros};
  for (const stage_kind stage : all_stages) {
    const auto moments = on_ranks(
        {stage, precision}, 2, many_units(3), settings,
        [](any_engine& engine, int rank, rank_communicator&) {
          const auto pass = engine.train();
          const auto skips = [&](std::uint32_t u) { return rank == 1 && u == 1; };
          for (std::uint32_t u = 0; u < 3; ++u) {
            if (!skips(u)) pass->forward(unit_id{u})->finish();
          }
          for (std::uint32_t u = 3; u-- > 0;) {
            if (skips(u)) continue;
            const auto scope = pass->backward(unit_id{u});
            scope->add(tensor_id{u}, std::vector<float>(37 + u, 2.0F));
            scope->finish();
          }
          pass->end();
          engine.step({.lr = 0.01});
          std::vector<float> sums(3);
          engine.for_each_owned(owned_state::gradients, [&](const tensor_info& info, std::uint64_t,
                                                            std::span<const float> values) {
            sums[info.id.value] = values[0];
          });
          return sums;
        });
    CAPTURE(name_of(stage));
    CHECK(std::max(moments[0][0], moments[1][0]) == 4.0F);
    CHECK(std::max(moments[0][1], moments[1][1]) == 2.0F);
    CHECK(std::max(moments[0][2], moments[1][2]) == 4.0F);
  }
}

TEST_CASE("a unit is reduced as soon as its last gradient is ready") {
  for (const stage_kind stage : all_stages) {
    const auto run = [&](bool announces) {
      return on_ranks({stage, precision}, 2, many_units(3), {},
                      [&](any_engine& engine, int rank, rank_communicator&) {
                        const auto pass = engine.train();
                        for (std::uint32_t u = 0; u < 3; ++u) pass->forward({u})->finish();
                        for (std::uint32_t u = 3; u-- > 0;) {
                          const auto scope = pass->backward({u});
                          scope->add({u},
                                     std::vector<float>(37 + u, 1.0F + static_cast<float>(rank)));
                          if (announces) pass->gradient_ready({u});
                          scope->finish();
                        }
                        pass->end();
                        const auto report = engine.step({.lr = 0.01});
                        return std::pair(state_of(engine, {report}), report.moved);
                      });
    };
    CAPTURE(name_of(stage));
    CHECK(run(true) == run(false));
  }
}

TEST_CASE("fault_39 a unit that is still open is not overwritten by the one that is due next") {
  constexpr std::uint32_t units = 6;
  for (const stage_kind stage : all_stages) {
    const auto changed = on_ranks({stage, precision}, 2, many_units(units), {},
                                  [&](any_engine& engine, int, rank_communicator&) {
                                    std::uint64_t changes = 0;
                                    const auto pass = engine.train();
                                    auto before = pass->forward({0});
                                    std::vector<float> values = before->read({0});
                                    for (std::uint32_t u = 1; u < units; ++u) {
                                      auto next = pass->forward({u});
                                      // Two neighbours are open, and a third is due.
                                      if (before->read({u - 1}) != values) ++changes;
                                      values = next->read({u});
                                      before->finish();
                                      before = std::move(next);
                                    }
                                    before->finish();
                                    before.reset();
                                    for (std::uint32_t u = units; u-- > 0;) {
                                      pass->backward({u})->finish();
                                    }
                                    pass->end();
                                    return changes;
                                  });
    CAPTURE(name_of(stage));
    for (const std::uint64_t changes : changed) CHECK(changes == 0);
  }
}

TEST_CASE("another forward traversal gathers again and changes no value") {
  for (const stage_kind stage : all_stages) {
    const auto run = [&](bool twice) {
      return on_ranks({stage, precision}, 2, many_units(3), {},
                      [&](any_engine& engine, int rank, rank_communicator&) {
                        const auto pass = engine.train();
                        for (int traversal = 0; traversal < (twice ? 2 : 1); ++traversal) {
                          if (traversal == 1) pass->forward_again();
                          for (std::uint32_t u = 0; u < 3; ++u) pass->forward({u})->finish();
                        }
                        for (std::uint32_t u = 3; u-- > 0;) {
                          pass->backward({u})->add(
                              {u}, std::vector<float>(37 + u, 1.0F + static_cast<float>(rank)));
                        }
                        pass->end();
                        const auto report = engine.step({.lr = 0.01});
                        return std::pair(state_of(engine, {report}), report.moved.all_gather);
                      })[0];
    };
    const auto once = run(false);
    const auto twice = run(true);
    CAPTURE(name_of(stage));
    CHECK(twice.first == once.first);
    const std::uint64_t psi = 37 + 38 + 39;
    CHECK(twice.second - once.second == (stage == stage_kind::stage3 ? psi : 0));
  }
}

TEST_CASE("evaluation moves Psi at stage 3 on a line of its own, and touches nothing") {
  for (const stage_kind stage : all_stages) {
    const auto results = on_ranks({stage, precision}, 3, sample_layout(), {},
                                  [](any_engine& engine, int rank, rank_communicator&) {
                                    run_steps(engine, rank, {.steps = 1});
                                    run_micro_batch(engine, rank, {}, {}, 1);
                                    const trained_state before = state_of(engine, {});
                                    {
                                      const auto pass = engine.evaluate();
                                      for (const unit_id use : engine.layout().uses())
                                        pass->forward(use)->finish();
                                    }
                                    const bool is_same = state_of(engine, {}) == before;
                                    const auto report = engine.step({.lr = 0.01});
                                    return std::tuple(is_same, engine.ledger().evaluation.total(),
                                                      report.moved.total());
                                  });
    const model_layout layout = sample_layout();
    const std::uint64_t psi = layout.trainable_elements();
    const std::uint64_t frozen_elements = layout.frozen_elements();
    const bool partitions = flags_of(stage).partitions_parameters;
    for (const auto& [is_same, evaluation, step] : results) {
      CAPTURE(name_of(stage));
      CHECK(is_same);
      CHECK(evaluation == (partitions ? psi + frozen_elements : 0));
      CHECK(step == volume_of(flags_of(stage)).elements(psi, frozen_elements));
    }
  }
}
