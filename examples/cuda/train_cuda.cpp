// SPDX-License-Identifier: Apache-2.0
// Trains a small language model on CUDA devices: by itself with ranks that are threads, under a
// launcher with one process for each rank and NCCL.
//   train_cuda --stage 3 --ranks 4 TEXT           zero-run -n 8 ./train_cuda --stage 2 TEXT
#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <zero/rendezvous/environment.hpp>

#include "program.hpp"
#include "train.hpp"

namespace {

using cuda_example::training_result;
using cuda_example::training_settings;
using example::exit_code;

std::vector<std::uint8_t> read_text(const std::string& path, std::uint64_t context) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw example::absent_failure("cannot read " + path);
  std::vector<std::uint8_t> text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() <= context) {
    throw example::usage_failure(path + " has " + std::to_string(text.size()) +
                                 " bytes; a context and its next byte are " +
                                 std::to_string(context + 1));
  }
  return text;
}

exit_code run(training_settings& settings, const std::string& path) {
  settings.text = read_text(path, settings.sizes.context);
  const zero::cuda_devices devices = zero::cuda_device_count();
  if (devices.count == 0) throw example::absent_failure(devices.reason);

  settings.report = [](std::uint64_t step, double loss, double norm) {
    std::fprintf(stderr, "step %4llu  loss %.4f  gradient norm %.4f\n",
                 static_cast<unsigned long long>(step + 1), loss, norm);
  };
  const zero::launch_environment launch = zero::from_environment();
  const bool is_launched = launch.launcher != "none";
  const training_result result =
      is_launched ? train_over_nccl(settings) : train_on_threads(settings);
  if (!is_launched || launch.rank == 0) {
    std::printf(
        "stage %s, %d ranks over %s: loss %.4f -> %.4f nats, parameters %016llx, "
        "held by rank 0: parameters %llu, gradients %llu, optimizer %llu bytes\n",
        settings.stage.c_str(), is_launched ? launch.size : static_cast<int>(settings.ranks),
        is_launched ? "nccl" : "cuda_threads", result.first_loss, result.last_loss,
        static_cast<unsigned long long>(result.parameters_hash),
        static_cast<unsigned long long>(result.held.parameters),
        static_cast<unsigned long long>(result.held.gradients),
        static_cast<unsigned long long>(result.held.optimizer));
  }
  // Far from what the data allow, and far from what a wrong gradient reaches.
  return result.last_loss < 0.75 * result.first_loss ? exit_code::success : exit_code::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  training_settings settings;
  std::string path;
  CLI::App app("Trains a small language model over bytes on CUDA devices.");
  app.add_option("text", path, "The file to learn from")->required();
  app.add_option("--stage", settings.stage, "1, 2 or 3")->check(CLI::IsMember({"1", "2", "3"}));
  app.add_option("--ranks", settings.ranks, "Threads, where no launcher says otherwise")
      ->check(CLI::Range(1, 64));
  app.add_option("--steps", settings.steps)->check(CLI::PositiveNumber);
  app.add_option("--lr", settings.learning_rate)->check(CLI::PositiveNumber);
  app.add_option("--width", settings.sizes.width)->check(CLI::PositiveNumber);
  app.add_option("--hidden", settings.sizes.hidden)->check(CLI::PositiveNumber);
  app.add_option("--blocks", settings.sizes.blocks)->check(CLI::PositiveNumber);
  app.add_option("--batch", settings.sizes.batch, "Rows of a rank")->check(CLI::PositiveNumber);
  return example::run_program(app, argc, argv, [&] { return run(settings, path); });
}
