// SPDX-License-Identifier: Apache-2.0
// labels: slow
// timeout: 300
#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <zero/zero.hpp>

using namespace zero;

// The bytes of the formulas are real: the peak resident size of a child process that trains 100 Mi
// elements on four ranks differs between the stages as predicted.

namespace {

constexpr std::uint64_t units = 25;
constexpr std::uint64_t unit_elements = 4 * 1024 * 1024;
constexpr int ranks = 4;

model_layout large_model() {
  model_layout layout;
  for (std::uint64_t u = 0; u < units; ++u) {
    layout.add_tensor(layout.add_unit("unit" + std::to_string(u)), "t" + std::to_string(u),
                      {unit_elements});
  }
  return layout;
}

template <class S>
void train_once() {
  run_threads(ranks, [](threads_communicator& communicator) {
    engine<S, bf16_mixed, threads_communicator, adamw> engine(communicator, large_model(), adamw{});
    engine.initialize([](const tensor_info&, std::uint64_t, std::span<float> values) {
      for (float& value : values) value = 0.01F;
    });
    auto pass = engine.train();
    for (std::uint32_t u = 0; u < units; ++u) pass.forward({u}).parameters({u});
    for (std::uint32_t u = units; u-- > 0;) pass.backward({u}).gradients({u});
    pass.end();
    engine.step();
  });
}

/// Peak resident bytes of a child process that runs `work`.
template <class Work>
std::uint64_t peak_of_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 0;
    try {
      work();
    } catch (...) {
      code = 1;
    }
    _exit(code);
  }
  int status = 0;
  rusage usage{};
  REQUIRE(wait4(child, &status, 0, &usage) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

template <class S>
std::uint64_t planned_bytes() {
  std::uint64_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    bytes += engine<S, bf16_mixed, threads_communicator, adamw>::required_bytes(large_model(),
                                                                                ranks, rank);
  }
  return bytes;
}

template <class S>
void check_difference(std::uint64_t peak_of_stage0) {
  const std::uint64_t peak = peak_of_child(train_once<S>);
  const double measured = static_cast<double>(peak_of_stage0) - static_cast<double>(peak);
  const double planned =
      static_cast<double>(planned_bytes<stage0>()) - static_cast<double>(planned_bytes<S>());
  CAPTURE(S::name, peak_of_stage0, peak, measured, planned);
  CHECK(std::abs(measured - planned) <= 0.05 * planned);
}

}  // namespace

TEST_CASE("peak resident memory differs between stages by the predicted bytes") {
  const std::uint64_t baseline = peak_of_child([] {});
  const std::uint64_t peak0 = peak_of_child(train_once<stage0>);
  const double planned = static_cast<double>(planned_bytes<stage0>());
  CAPTURE(baseline, peak0, planned);
  CHECK(static_cast<double>(peak0 - baseline) == Approx(planned).epsilon(0.05));
  check_difference<stage1>(peak0);
  check_difference<stage2>(peak0);
  check_difference<stage3>(peak0);
  check_difference<stage3_keep_gathered>(peak0);
}
