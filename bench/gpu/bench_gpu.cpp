// SPDX-License-Identifier: Apache-2.0
// bench_gpu [--elements N] [--psi N] [--json FILE] [--list]
//
// How far device kernels are from a device-to-device copy of as many bytes, and how long a training
// step takes at each stage. Exits with 77 after one line where there is no GPU.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <zero/cuda/device.hpp>

#include "report.hpp"

namespace {

struct options {
  std::uint64_t elements = std::uint64_t{1} << 28U;
  std::uint64_t psi = std::uint64_t{1} << 26U;
  std::string json;
  bool only_lists = false;
};

struct usage_problem : std::runtime_error {
  using runtime_error::runtime_error;
};

std::uint64_t number_of(const std::string& option, const char* text) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value == 0 || *text == '-') {
    throw usage_problem(option + " takes a number above 0, not '" + text + "'");
  }
  return value;
}

options parse(int argc, char** argv) {
  options result;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--list") {
      result.only_lists = true;
      continue;
    }
    const char* const value = i + 1 < argc ? argv[++i] : nullptr;
    if (value == nullptr) throw usage_problem("'" + option + "' is no option, or lacks its value");
    if (option == "--elements") {
      result.elements = number_of(option, value);
    } else if (option == "--psi") {
      result.psi = number_of(option, value);
    } else if (option == "--json") {
      result.json = value;
    } else {
      throw usage_problem("there is no option '" + option + "'");
    }
  }
  return result;
}

using file = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

void write_json(const std::string& path, const std::vector<gpu_bench::kernel_row>& kernels,
                const std::vector<gpu_bench::step_row>& steps) {
  const file out(std::fopen(path.c_str(), "w"), &std::fclose);
  if (!out) throw std::runtime_error(path + ": " + std::strerror(errno));
  std::fprintf(out.get(), "{\"schema\": \"zero.bench_gpu/1\",\n \"kernels\": [");
  const char* separator = "\n  ";
  for (const auto& row : kernels) {
    std::fprintf(out.get(),
                 "%s{\"name\": \"%s\", \"elements\": %llu, \"bytes\": %.0f, \"seconds\": %.9g, "
                 "\"gigabytes_per_second\": %.6g, \"copy_gigabytes_per_second\": %.6g, "
                 "\"fraction_of_copy\": %.4f, \"has_goal\": %s}",
                 separator, row.name.c_str(), static_cast<unsigned long long>(row.elements),
                 row.bytes, row.seconds, 1e-9 * row.bytes / row.seconds,
                 1e-9 * row.bytes / row.copy_seconds, row.copy_seconds / row.seconds,
                 row.has_goal ? "true" : "false");
    separator = ",\n  ";
  }
  std::fprintf(out.get(), "],\n \"steps\": [");
  separator = "\n  ";
  for (const auto& row : steps) {
    std::fprintf(out.get(),
                 "%s{\"stage\": \"%s\", \"ranks\": %d, \"psi\": %llu, \"seconds\": %.9g}",
                 separator, row.stage.c_str(), row.ranks, static_cast<unsigned long long>(row.psi),
                 row.seconds);
    separator = ",\n  ";
  }
  std::fprintf(out.get(), "]}\n");
  if (std::fflush(out.get()) != 0) throw std::runtime_error(path + ": " + std::strerror(errno));
}

void print(const std::vector<gpu_bench::kernel_row>& kernels,
           const std::vector<gpu_bench::step_row>& steps) {
  std::printf("%-60s %9s %9s %7s\n", "", "us", "GB/s", "of copy");
  for (const auto& row : kernels) {
    std::printf("%-60s %9.1f %9.1f %6.1f%%\n", row.name.c_str(), 1e6 * row.seconds,
                1e-9 * row.bytes / row.seconds, 100 * row.copy_seconds / row.seconds);
  }
  for (const auto& row : steps) {
    std::printf("step, stage %s, %d ranks, %llu parameters: %.3f ms\n", row.stage.c_str(),
                row.ranks, static_cast<unsigned long long>(row.psi), 1e3 * row.seconds);
  }
}

int run(const options& wanted) {
  if (wanted.only_lists) {
    std::printf("update\nnorm\nconvert\nfold\nstep\n");
    return 0;
  }
  const zero::cuda_devices devices = zero::cuda_device_count();
  if (devices.count == 0) {
    std::printf("%s\n", devices.reason.c_str());
    return 77;
  }
  const auto kernels = gpu_bench::measure_kernels(wanted.elements);
  const auto steps = gpu_bench::measure_steps(wanted.psi);
  print(kernels, steps);
  if (!wanted.json.empty()) write_json(wanted.json, kernels, steps);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const usage_problem& problem) {
    std::fprintf(stderr, "bench_gpu: %s\n", problem.what());
    return 2;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "bench_gpu: %s\n", problem.what());
    return 1;
  }
}
