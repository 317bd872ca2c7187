// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

#include "catalogue.hpp"
#include "ranks.hpp"

namespace gpt {
namespace {

using names = std::vector<std::string>;

// Not CLI11's own optional: its parser would take an empty text for a value.
struct raw_options {
  std::string data;
  std::string heldout;
  double lr = 0;
};

void add_text_options(CLI::App& app, raw_options& raw) {
  app.add_option("--data", raw.data,
                 "text to train on (default: the licences in /usr/share/common-licenses)");
  app.add_option("--heldout", raw.heldout,
                 "text to measure (default: the last tenth of --data, or MPL-2.0)");
}

void add_run_options(CLI::App& app, command& what, raw_options& raw) {
  run_settings& run = what.settings;
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str();
  };
  add("--optimizer", run.optimizer, "adamw; stages 1 and 3 also adam, lion, sgd");
  add("--backend", run.backend,
      "how ranks talk: threads of this process, or processes by shm, gloo or mpi; auto: threads, "
      "and under a launcher (mpirun, srun, torchrun) shm on one host and gloo on several");
  app.add_option("--interface", run.interface, "network interface for gloo (default: found out)");
  add("--timeout", run.timeout_seconds, "seconds that a rank waits for the others");
  add("--ranks", run.ranks, "number of ranks; under a launcher its number of processes");
  add("--steps", run.steps, "optimizer steps");
  add("--layers", run.model.layers, "blocks of the model");
  add("--width", run.model.width, "width of the residual stream");
  add("--heads", run.model.heads, "attention heads; divides the width");
  add("--context", run.model.context, "bytes that the model sees");
  add("--micro-batches", run.micro_batches, "parts of a step, whose gradients are added up");
  add("--batch", run.batch,
      "global batch: sequences of a step over all ranks and micro-batches; a multiple of ranks x "
      "micro-batches");
  app.add_option("--lr", raw.lr,
                 "peak learning rate (default: 0.002 for adamw and adam, 0.0003 for lion, 0.1 for "
                 "sgd)");
  add("--clip", run.clip, "largest norm of the gradient, 0 for no clipping");
  add("--seed", run.seed, "of initial values, batches and the sample");
  add("--sample", run.sampled_bytes, "bytes of text to write after training");
}

void add_choice(CLI::App& app, command& what, bool compares) {
  if (compares) {
    what.stages = {"0", "1", "2", "3", "3_keep_gathered"};
    app.add_option("--stages", what.stages, "list of stages, separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--precisions", what.precisions, "list of precisions, separated by commas")
        ->delimiter(',')
        ->capture_default_str();
  } else {
    app.add_option("--stage", what.stages.front(), "0, 1, 2, 3 or 3_keep_gathered")
        ->capture_default_str();
    app.add_option("--precision", what.precisions.front(),
                   "fp32, bf16_mixed, fp16_mixed, bf16_mixed_fp32_gradients or bf16_remainder")
        ->capture_default_str();
    app.add_option("--losses", what.losses_file, "file for the loss of each step (tsv)");
  }
  app.add_option("--json", what.json_file, "file for what was measured and predicted");
  app.add_flag("--quiet", what.is_quiet, "no progress on stderr");
}

void finish(const CLI::App& app, const raw_options& raw, command& what) {
  if (app.count("--lr") > 0) {
    what.settings.peak_lr = raw.lr;
  }
  if (app.count("--data") > 0) {
    what.data.data = raw.data;
  }
  if (app.count("--heldout") > 0) {
    what.data.heldout = raw.heldout;
  }
  what.data.context = what.settings.model.context;
  adopt_launch(what.settings, app.count("--ranks") > 0);
  for (const std::string& precision : what.precisions) {
    for (const std::string& stage : what.stages) {
      find_trainer(stage, precision, what.settings.optimizer);
      check(what.run_of(stage, precision));
    }
  }
}

}  // namespace

run_settings command::run_of(const std::string& stage, const std::string& precision) const {
  run_settings run = settings;
  run.stage = stage;
  run.precision = precision;
  return run;
}

int run_command(const program_form& form, int argc, const char* const* argv,
                const std::function<example::exit_code(const command&)>& body) {
  CLI::App app(form.description, form.name);
  command what;
  raw_options raw;
  what.stages = names{what.settings.stage};
  what.precisions = names{what.settings.precision};
  add_text_options(app, raw);
  add_run_options(app, what, raw);
  add_choice(app, what, form.compares);
  return example::run_program(app, argc, argv, [&] {
    finish(app, raw, what);
    return body(what);
  });
}

corpus load_text(const command& what) {
  try {
    return load_corpus(what.data);
  } catch (const data_error& failure) {
    if (failure.exit_code() == data_error::absent) {
      throw example::absent_failure(failure.what());
    }
    throw example::usage_failure(failure.what());
  }
}

void write_losses(const std::string& path, const std::vector<double>& losses) {
  std::string text = "step\tloss\n";
  for (std::size_t i = 0; i < losses.size(); ++i) {
    char line[64];
    std::snprintf(line, sizeof line, "%zu\t%.9g\n", i + 1, losses[i]);
    text += line;
  }
  example::write_file(path, text);
}

}  // namespace gpt
