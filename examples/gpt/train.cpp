// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/threads.hpp>

#include "matmul.hpp"
#include "progress.hpp"
#include "run_record.hpp"

namespace gpt {

namespace {

run_record run_rank(rank_communicator& communicator, const training_job& job,
                    const trainer_entry& trainer) {
  single_threaded_math();
  return combine(communicator, job, trainer, trainer.train(communicator, job));
}

}  // namespace

run_record train(const run_settings& settings, const corpus& text, progress& report) {
  check(settings);
  const trainer_entry& trainer =
      find_trainer(settings.stage, settings.precision, settings.optimizer);
  const described_model model(settings.model, settings.seed);
  report.begin("stage " + settings.stage + " " + settings.precision);
  // A rank that computes keeps its peers waiting; on a busy machine that may take a while.
  const zero::threads_options patient{.timeout = std::chrono::minutes(10)};
  const auto records =
      zero::run_threads(settings.ranks, patient, [&](zero::threads_communicator& threads) {
        zero::any_communicator backend(threads);
        rank_communicator communicator(backend);
        const training_job job{settings, text, model, threads.rank() == 0 ? &report : nullptr};
        return run_rank(communicator, job, trainer);
      });
  return records.front();
}

}  // namespace gpt
