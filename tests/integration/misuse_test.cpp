// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// Run-time misuse throws a typed error that carries the values, and never leaves peers hanging.

namespace {

constexpr precision_kind precision = precision_kind::bf16_mixed;

/// What `misuse(engine)` throws on one rank of one.
template <class Misuse>
rank_error misuse_of(stage_kind stage, Misuse misuse, const engine_options& options = {},
                     bool initializes = true) {
  return run_threads(1, [&](threads_communicator& threads) {
    rank_communicator communicator(threads);
    const auto engine =
        make_engine({stage, precision}, communicator.counter, sample_layout(), options);
    if (initializes) engine->initialize(initial_values);
    return error_of([&] { misuse(*engine); });
  })[0];
}

void check_usage(const rank_error& error, std::string_view part) {
  CAPTURE(error.text, part);
  CHECK(error.kind == outcome::usage);
  CHECK(error.says(part));
}

const model_layout& layout() {
  static const model_layout sample = sample_layout();
  return sample;
}
unit_id unit(std::string_view name) {
  for (std::uint32_t u = 0; u < layout().unit_count(); ++u) {
    if (layout().unit_name(unit_id{u}) == name) return unit_id{u};
  }
  throw error("no such unit");
}
tensor_id tensor(std::string_view name) {
  for (std::uint32_t t = 0; t < layout().tensor_count(); ++t) {
    if (layout().info(tensor_id{t}).name == name) return tensor_id{t};
  }
  throw error("no such tensor");
}

void run_forward(any_pass& pass) {
  for (const unit_id use : layout().uses()) pass.forward(use)->finish();
}

}  // namespace

TEST_CASE("a pass needs values") {
  for (const stage_kind stage : all_stages) {
    check_usage(misuse_of(
                    stage, [](any_engine& e) { e.train(); }, {}, false),
                "tensor \"table\" has no values yet");
    check_usage(misuse_of(
                    stage, [](any_engine& e) { e.evaluate(); }, {}, false),
                "no values yet");
  }
}

TEST_CASE("micro-batches come in turn and need a mode") {
  const auto train = [](micro_batch_position position) {
    return [position](any_engine& e) { e.train(position); };
  };
  check_usage(misuse_of(stage_kind::stage2, train({0, 2})), "need engine_options::accumulation");
  check_usage(
      misuse_of(stage_kind::stage2, train({1, 2}), {.accumulation = accumulation::reduce_last}),
      "micro-batch 1 was begun where 0");
  check_usage(misuse_of(stage_kind::stage2, train({2, 2})), "micro-batch 2 of 2 does not exist");
  check_usage(misuse_of(stage_kind::stage2, train({0, 0})), "micro-batch 0 of 0 does not exist");
  check_usage(misuse_of(stage_kind::stage1,
                        [](any_engine& e) {
                          run_micro_batch(e, 0, {}, {}, 0);
                          e.train();
                        }),
              "step()");
  check_usage(misuse_of(stage_kind::stage1,
                        [](any_engine& e) {
                          run_micro_batch(e, 0, {}, {0, 2}, 0);
                          e.train({1, 3});
                        },
                        {.accumulation = accumulation::reduce_last}),
              "began with 2 micro-batches");
  check_usage(misuse_of(stage_kind::stage1, [](any_engine& e) { e.step({}); }),
              "0 of 1 micro-batches have ended");
}

TEST_CASE("reduce_every is refused at stage 0") {
  const auto error = run_threads(1, [](threads_communicator& threads) {
    rank_communicator communicator(threads);
    return error_of([&] {
      make_engine({stage_kind::stage0, precision}, communicator.counter, sample_layout(),
                  {.accumulation = accumulation::reduce_every});
    });
  })[0];
  check_usage(error, "stage 0 offers reduce_last");
}

TEST_CASE("one pass at a time, closed before a step") {
  for (const stage_kind stage : all_stages) {
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            const auto pass = e.train();
                            e.train();
                          }),
                "a pass is still open");
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            const auto pass = e.train();
                            const auto scope = pass->forward(unit("embedding"));
                            e.step({});
                          }),
                "with it unit \"embedding\"");
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            const auto pass = e.train();
                            const auto scope = pass->forward(unit("embedding"));
                            pass->end();
                          }),
                "never ran forward");
  }
}

TEST_CASE("units follow the schedule in every stage") {
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    check_usage(misuse_of(stage, [](any_engine& e) { e.train()->forward(unit("block1")); }),
                "\"block1\" was opened in the forward traversal where \"embedding\" is due");
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            const auto pass = e.train();
                            run_forward(*pass);
                            pass->backward(unit("block2"));
                          }),
                "\"head\" is due");
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            const auto pass = e.train();
                            run_forward(*pass);
                            pass->forward(unit("embedding"));
                          }),
                "forward_again()");
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            const auto pass = e.train();
                            pass->forward(unit("embedding"))->finish();
                            pass->backward(unit("head"));
                          }),
                "\"block0\" never ran forward");
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            const auto pass = e.train();
                            run_forward(*pass);
                            pass->backward(unit("head"))->finish();
                            pass->forward_again();
                          }),
                "after the backward traversal has begun");
  }
}

TEST_CASE("a unit that never ran backward is an error where its gradient would be missing") {
  for (const stage_kind stage :
       {stage_kind::stage2, stage_kind::stage3, stage_kind::stage3_keep_gathered}) {
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            const auto pass = e.train();
                            run_forward(*pass);
                            pass->backward(unit("head"))->finish();
                            pass->end();
                          }),
                "\"adapter\" never ran backward");
  }
}

TEST_CASE("tensors are reached through their open unit") {
  check_usage(misuse_of(stage_kind::stage3,
                        [](any_engine& e) {
                          const auto pass = e.train();
                          pass->forward(unit("embedding"))->read(tensor("block1.weight"));
                        }),
              "\"block1.weight\" was read while unit \"block1\" is not open");
  check_usage(misuse_of(stage_kind::stage2,
                        [](any_engine& e) {
                          const auto pass = e.train();
                          run_forward(*pass);
                          const std::vector<float> values(8 * 13);
                          pass->backward(unit("head"))->add(tensor("block1.weight"), values);
                        }),
              "unit \"block1\" is not open in the backward traversal");
  check_usage(misuse_of(stage_kind::stage2,
                        [](any_engine& e) {
                          const auto pass = e.train();
                          run_forward(*pass);
                          const std::vector<float> values(3);
                          pass->backward(unit("head"))->add(tensor("head.bias"), values);
                        }),
              "has 37 elements, the span has 3");
  check_usage(misuse_of(stage_kind::stage2,
                        [](any_engine& e) {
                          const auto pass = e.train();
                          run_forward(*pass);
                          for (const char* name : {"head", "adapter"}) {
                            const auto scope = pass->backward(unit(name));
                            if (std::string_view(name) == "adapter") {
                              scope->add(tensor("adapter.all_fixed"), std::vector<float>(29));
                            }
                          }
                        }),
              "is frozen and has no gradient");
}

TEST_CASE("a scope is used once") {
  check_usage(misuse_of(stage_kind::stage2,
                        [](any_engine& e) {
                          const auto pass = e.train();
                          const auto scope = pass->forward(unit("embedding"));
                          scope->finish();
                          scope->finish();
                        }),
              "finished already");
  check_usage(misuse_of(stage_kind::stage2,
                        [](any_engine& e) {
                          const auto pass = e.evaluate();
                          pass->end();
                          pass->end();
                        }),
              "the pass has ended");
}

TEST_CASE("an evaluation pass has no backward") {
  check_usage(
      misuse_of(stage_kind::stage3, [](any_engine& e) { e.evaluate()->backward(unit("head")); }),
      "no backward");
}

TEST_CASE("a gradient cannot be written after its unit was reduced") {
  check_usage(misuse_of(stage_kind::stage1,
                        [](any_engine& e) {
                          const auto pass = e.train();
                          run_forward(*pass);
                          pass->backward(unit("head"))->finish();
                          pass->add_replicated(tensor("head.bias"), std::vector<float>(37));
                        }),
              "was reduced already");
}

TEST_CASE("arguments of a step are checked") {
  const auto step = [](step_arguments arguments) {
    return [arguments](any_engine& e) {
      run_micro_batch(e, 0, {}, {}, 0);
      e.step(arguments);
    };
  };
  const double nan = std::nan("");
  check_usage(misuse_of(stage_kind::stage2, step({.lr = nan})), "lr is nan");
  check_usage(misuse_of(stage_kind::stage2, step({.clip = -1.0})), "clip is -1");
  check_usage(misuse_of(stage_kind::stage2, step({.clip = nan})), "clip is nan");
  check_usage(misuse_of(stage_kind::stage2, step({.divisor = 0.0})), "divisor is 0");
  static const group_rate rates[] = {{group_id{9}, 0.1}};
  check_usage(misuse_of(stage_kind::stage2, step({.group_lr = rates})), "group 9 of 3");
}

TEST_CASE("import and export check sizes and ranks") {
  for (const stage_kind stage : {stage_kind::stage0, stage_kind::stage3}) {
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            e.import_tensor(tensor("head.bias"), std::vector<float>(5),
                                            same_on_all_ranks);
                          }),
                "\"head.bias\" has 37 elements, the span has 5");
    check_usage(misuse_of(stage,
                          [](any_engine& e) {
                            e.import_tensor(tensor("head.bias"), std::vector<float>(37),
                                            from_rank{4});
                          }),
                "rank 4 of 1 does not exist");
  }
}

TEST_CASE("a communicator serves one engine at a time, one after the other") {
  const auto errors = run_threads(2, [](threads_communicator& threads) {
    rank_communicator communicator(threads);
    const engine_choice choice{stage_kind::stage2, precision};
    auto first = make_engine(choice, communicator.counter, sample_layout());
    const rank_error second =
        error_of([&] { make_engine(choice, communicator.counter, sample_layout()); });
    first.reset();
    first = make_engine(choice, communicator.counter, sample_layout());
    return second;
  });
  for (const rank_error& error : errors)
    check_usage(error, "another engine uses this communicator");
}

TEST_CASE("an arena of the user's must be large enough and aligned") {
  const auto with_arena = [](std::uint64_t missing, std::uint64_t shift) {
    return run_threads(1, [&](threads_communicator& threads) {
      rank_communicator communicator(threads);
      const plan_request request{flags_of(stage_kind::stage2),
                                 bytes_of(precision, optimizer_kind::adamw)};
      const std::uint64_t bytes = make_plan(sample_layout(), request).arena_bytes;
      std::vector<std::byte> block(bytes + 128);
      const auto address = reinterpret_cast<std::uintptr_t>(block.data());
      const std::uint64_t start = (64 - address % 64) % 64 + shift;
      return error_of([&] {
        const auto engine =
            make_engine({stage_kind::stage2, precision}, communicator.counter, sample_layout(),
                        {.arena = std::span(block).subspan(start, bytes - missing)});
        engine->initialize(initial_values);
        run_steps(*engine, 0, {});
      });
    })[0];
  };
  CHECK(with_arena(0, 0).kind == outcome::returned);
  check_usage(with_arena(1, 0), "are needed");
  check_usage(with_arena(0, 8), "aligned to 64");
}

TEST_CASE("an exception inside a scope ends all ranks, and the first cause comes out") {
  for (const stage_kind stage : all_stages) {
    const auto result = try_run_threads(3, long_timeout, [&](threads_communicator& threads) {
      rank_communicator communicator(threads);
      const auto engine = make_engine({stage, precision}, communicator.counter, sample_layout());
      engine->initialize(initial_values);
      run_steps(*engine, threads.rank(), {.steps = 1});
      const auto pass = engine->train();
      run_forward(*pass);
      const auto scope = pass->backward(unit("head"));
      if (threads.rank() == 1) throw std::runtime_error("the user's own trouble");
      scope->finish();
      for (const char* name : {"adapter", "block2", "block1", "block0", "embedding"}) {
        pass->backward(unit(name))->finish();
      }
      pass->end();
      engine->step({});
    });
    CAPTURE(name_of(stage));
    CHECK(result.failed_rank() == 1);
    CHECK(describe(result.cause()).says("the user's own trouble"));
    for (const int rank : {0, 2}) {
      const rank_error error = describe(result.error(rank));
      CHECK(error.kind == outcome::aborted);
      CHECK(error.says("left"));
    }
  }
}

TEST_CASE("an error in a scope that is dropped is kept for the next call") {
  const auto results = outcomes(2, long_timeout, [](threads_communicator& threads) {
    rank_communicator communicator(threads);
    const auto engine =
        make_engine({stage_kind::stage2, precision}, communicator.counter, sample_layout());
    engine->initialize(initial_values);
    const auto pass = engine->train();
    run_forward(*pass);
    if (threads.rank() == 1) {
      communicator.faults.arm(
          {.kind = fault_kind::throw_before, .operation = collective::reduce_scatter});
    }
    pass->backward(unit("head"));  // dropped at once: the reduction fails on rank 1
    pass->backward(unit("adapter"))->finish();
    pass->end();
  });
  CHECK(results[1].kind == outcome::communicator);
  CHECK(results[0].kind == outcome::aborted);
}

TEST_CASE("different arguments of a step are found on every rank, before anything changes") {
  for (const stage_kind stage : all_stages) {
    const auto results = run_threads(3, long_timeout, [&](threads_communicator& threads) {
      rank_communicator communicator(threads);
      const auto engine = make_engine({stage, precision}, communicator.counter, sample_layout());
      engine->initialize(initial_values);
      run_micro_batch(*engine, threads.rank(), {}, {}, 0);
      const trained_state before = [&] {
        // Exports are collective and allowed between the passes and the step.
        return state_of(*engine, {});
      }();
      const rank_error error =
          error_of([&] { engine->step({.lr = threads.rank() == 2 ? 0.1 : 0.2}); });
      const bool is_unchanged = state_of(*engine, {}) == before;
      // The same step with equal arguments still works.
      const auto report = engine->step({.lr = 0.1});
      return std::tuple(error, is_unchanged, report.skipped);
    });
    for (const auto& [error, is_unchanged, skipped] : results) {
      CAPTURE(name_of(stage), error.text);
      CHECK(error.kind == outcome::mismatch);
      CHECK(error.says("different arguments to step()"));
      CHECK(is_unchanged);
      CHECK_FALSE(skipped);
    }
  }
}
