// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// links: gpt_runs
// programs: train_gpt
// timeout: 120
#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/threads.hpp>

#include "comparison.hpp"
#include "computation.hpp"
#include "program.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "run_json.hpp"
#include "run_record.hpp"
#include "unit/gpt/local_model.hpp"

using namespace gpt;

namespace {

const configuration tiny{.layers = 1, .width = 16, .heads = 2, .context = 16};

corpus sample_text_of(std::size_t bytes) {
  const std::string_view line = "the quick brown fox jumps over the lazy dog, and so on. ";
  corpus text;
  for (std::size_t i = 0; i < bytes; ++i) {
    text.training.push_back(
        static_cast<std::uint8_t>(line[i * 7 % 5 == 0 ? i % 9 : i % line.size()]));
  }
  text.heldout.assign(text.training.begin() + 31, text.training.begin() + 231);
  return text;
}

run_settings tiny_run() {
  return {.model = tiny,
          .stage = "0",
          .precision = "fp32",
          .backend = "threads",
          .ranks = 2,
          .steps = 4,
          .batch = 4,
          .sampled_bytes = 0};
}

run_record trained(const run_settings& settings) {
  progress quiet(true);
  const auto world = open_ranks(settings);
  return train(settings, sample_text_of(2000), *world, quiet);
}

/// What `combine` finds wrong with a run after `spoil` has changed what the rank saw.
std::vector<std::string> found_in(const std::function<void(rank_run&)>& spoil) {
  run_settings settings = tiny_run();
  settings.ranks = 1;
  const corpus text = sample_text_of(2000);
  const described_model model(settings.model, settings.seed);
  const trainer_entry& trainer = find_trainer("0", "fp32", "adamw");
  return zero::run_threads(1,
                           [&](zero::threads_communicator& threads) {
                             zero::any_communicator backend(threads);
                             rank_communicator communicator(backend);
                             const training_job job{settings, text, model};
                             rank_run run = trainer.train(communicator, job);
                             spoil(run);
                             return combine(communicator, job, trainer, run).failures;
                           })
      .front();
}

}  // namespace

TEST_CASE("gpt: one rank in fp32 learns like a plain loop in one process") {
  run_settings settings = tiny_run();
  settings.ranks = 1;
  settings.steps = 20;
  settings.clip = 0;
  const corpus text = sample_text_of(2000);
  gpt_test::local_model<float> local(tiny, settings.batch, tiny.context, settings.seed);
  gpt_test::plain_adamw<float> optimizer(local, 0.1);
  std::vector<double> losses;
  for (std::uint64_t step = 1; step <= settings.steps; ++step) {
    computation batch(tiny, settings.batch);
    load_batch(text.training, {settings.seed, step, 0}, batch);
    std::vector<std::uint8_t> tokens;
    std::vector<std::uint8_t> targets;
    for (std::uint64_t s = 0; s < settings.batch; ++s) {
      tokens.insert(tokens.end(), batch.tokens(s).begin(), batch.tokens(s).end());
      targets.insert(targets.end(), batch.targets(s).begin(), batch.targets(s).end());
    }
    local.zero_gradients();
    losses.push_back(local.forward(tokens, targets));
    local.backward(tokens, targets);
    optimizer.step(local, learning_rate(settings, step));
  }
  const run_record record = trained(settings);
  REQUIRE(record.losses.size() == losses.size());
  CHECK(record.losses[0] == losses[0]);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    CAPTURE(i, record.losses[i], losses[i]);
    CHECK(std::abs(record.losses[i] - losses[i]) <= 1e-4);
  }
  CHECK(losses.back() < losses.front() - 0.1);
}

TEST_CASE("gpt: a run whose figures are right has no failures") {
  CHECK(found_in([](rank_run&) {}).empty());
}

TEST_CASE("gpt: each wrong figure is found") {
  CHECK_FALSE(found_in([](rank_run& run) { run.held.parameters -= 4; }).empty());
  CHECK_FALSE(found_in([](rank_run& run) { run.held.transient += 64; }).empty());
  CHECK_FALSE(found_in([](rank_run& run) { run.allocated_bytes += 64; }).empty());
  CHECK_FALSE(found_in([](rank_run& run) {
                run.counted[zero::collective::all_gather].elements += 1;
              }).empty());
  CHECK_FALSE(found_in([](rank_run& run) { run.booked.reduce_scatter += 1; }).empty());
}

TEST_CASE("gpt: values that differ from the first run's are found") {
  std::vector<run_record> runs(2, trained(tiny_run()));
  CHECK(failures_of(runs).empty());
  CHECK(comparison_table(runs).find("NO") == std::string::npos);
  runs[1].parameters_xxh64[3] = runs[1].parameters_xxh64[3] == '0' ? '1' : '0';
  CHECK(failures_of(runs).size() == 1);
  CHECK(comparison_table(runs).find("NO") != std::string::npos);
}

TEST_CASE("gpt: an impossible engine is refused with what there is") {
  run_settings settings = tiny_run();
  settings.optimizer = "lion";
  try {
    trained(settings);
    FAIL("stage 0 with lion was accepted");
  } catch (const example::usage_failure& failure) {
    CHECK(std::string(failure.what()).find("stages 1 and 3") != std::string::npos);
  }
  CHECK(all_trainers().size() == 37);
}

TEST_CASE("gpt: accumulation has a field of its own, and only where there is some") {
  run_settings settings = tiny_run();
  const run_record once[] = {trained(settings)};
  CHECK(to_json(once).find("\"accumulation\"") == std::string::npos);
  settings.micro_batches = 2;
  const run_record twice[] = {trained(settings)};
  CHECK(twice[0].failures.empty());
  CHECK(to_json(twice).find("\"accumulation\"") != std::string::npos);
  // The same global batch: only the order of additions differs.
  CHECK(std::abs(twice[0].last_loss() - once[0].last_loss()) <= 1e-4);
}
