// SPDX-License-Identifier: Apache-2.0
// Runs engine_over_nccl.cpp on simulated machines: the linker calls this in place of its main
// (--wrap=main). The kernels are launched by the stubs that nvcc compiled, and their names lead to
// the bodies here.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <zero/kernels/cuda/cast_body.hpp>
#include <zero/kernels/cuda/control_body.hpp>
#include <zero/kernels/cuda/norm_body.hpp>
#include <zero/kernels/cuda/update_body.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>

#include "support/simulated_device/device_code.hpp"
#include "support/simulated_device/nccl_running_device.hpp"
#include "support/simulated_device/simulated_device.hpp"

extern "C" int __real_main(int argc, char** argv);

namespace {

using namespace zero::test;
namespace cuda = zero::kernels::cuda;
using zero::adamw;
using zero::bf16_mixed;
using zero::bfloat16;

/// The kernels that the training needs, and no other: NCCL sums, and there is one micro-batch.
std::vector<std::string> needed_kernels() {
  return {
      simulate_device_code<cuda::update_body<adamw, bf16_mixed, bfloat16>>("run"),
      simulate_device_code<cuda::advance_body<adamw, bf16_mixed>>("run"),
      simulate_device_code<cuda::step_message_body>("run"),
      simulate_device_code<cuda::chunk_sums_body<bfloat16, true>>("sum_chunks"),
      simulate_device_code<cuda::chunk_sums_body<double, false>>("sum_chunks"),
      simulate_device_code<cuda::convert_body<bfloat16, float>>("run"),
      simulate_device_code<cuda::convert_body<float, bfloat16>>("run"),
  };
}

/// Problems of one run on as many devices as the program has ranks.
int problems_of(std::uint64_t seed, int ranks) {
  const simulated_device device(
      {.seed = seed, .devices = ranks, .patience = std::chrono::seconds(20)});
  int problems = 0;
  {
    const running_device running;
    std::string program = "engine_over_nccl";
    std::string argument = std::to_string(ranks);
    char* arguments[] = {program.data(), argument.data(), nullptr};
    problems = __real_main(2, arguments) == 0 ? 0 : 1;
  }
  for (const std::string& finding : device.findings()) {
    std::printf("%s\n", finding.c_str());
    ++problems;
  }
  if (problems != 0) std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return problems;
}

}  // namespace

extern "C" int __wrap_main(int, char**) {
  const std::vector<std::string> kernels = needed_kernels();
  int problems = 0;
  for (const int ranks : {1, 2, 3, 4}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) problems += problems_of(seed, ranks);
  }
  for (const std::string& kernel : kernels) {
    const std::uint64_t runs = device_code_runs(kernel);
    std::printf("%6llu launches of %s\n", static_cast<unsigned long long>(runs), kernel.c_str());
    if (runs == 0) ++problems;
  }
  return problems == 0 ? 0 : 1;
}
