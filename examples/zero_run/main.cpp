// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include <chrono>
#include <exception>
#include <iostream>

#include "launch.hpp"
#include "program.hpp"

// zero-run -n 4 ./program --option: four ranks of a program on this host, with the variables that
// torchrun sets. For tests and examples: mpirun, srun and torchrun start ranks on several hosts.

int main(int argc, char** argv) {
  zero_run::launch_options options;
  int timeout_seconds = 0;
  int grace_seconds = static_cast<int>(options.grace.count());
  CLI::App app("Starts a program once per rank on this host.", "zero-run");
  app.add_option("-n,--ranks", options.ranks, "How many ranks")
      ->required()
      ->check(CLI::Range(1, 4096));
  app.add_option("--timeout", timeout_seconds, "End all ranks after this many seconds, status 124")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--grace", grace_seconds, "Seconds from SIGTERM to SIGKILL")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  app.prefix_command();  // what follows the options is the program's
  app.footer(
      "zero-run [options] PROGRAM [ARGUMENTS]\n"
      "When a rank fails, the others are ended. The status is that of the first that failed, "
      "128 + signal\nfor one that a signal ended.");

  // The status of a rank passes through; run_program would take it for one of its own.
  int status = 0;
  const int own_status = example::run_program(app, argc, argv, [&] {
    options.command = app.remaining();
    if (options.command.empty()) throw example::usage_failure("no program to start");
    if (timeout_seconds > 0) options.timeout = std::chrono::seconds(timeout_seconds);
    options.grace = std::chrono::seconds(grace_seconds);
    status = zero_run::launch(options);
    return example::exit_code::success;
  });
  return own_status != 0 ? own_status : status;
}
