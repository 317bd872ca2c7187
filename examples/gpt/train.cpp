// SPDX-License-Identifier: Apache-2.0
#include <zero/adapters/any_communicator.hpp>

#include "matmul.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "run_record.hpp"

namespace gpt {

run_record train(const run_settings& settings, const corpus& text, rank_world& world,
                 progress& report) {
  check(settings);
  const trainer_entry& trainer =
      find_trainer(settings.stage, settings.precision, settings.optimizer);
  const described_model model(settings.model, settings.seed);
  report.begin("stage " + settings.stage + " " + settings.precision);
  return world.run([&](zero::any_communicator& backend) {
    single_threaded_math();
    rank_communicator communicator(backend);
    const training_job job{settings, text, model, backend.rank() == 0 ? &report : nullptr};
    run_record record = combine(communicator, job, trainer, trainer.train(communicator, job));
    record.settings.backend = backend.inner_name();
    return record;
  });
}

}  // namespace gpt
