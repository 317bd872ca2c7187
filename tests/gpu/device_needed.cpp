// SPDX-License-Identifier: Apache-2.0
// Part of every program in tests/gpu: where there is no GPU, one line and exit code 77, which ctest
// reports as skipped.
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // declares listeners
#include <cstdio>
#include <cstdlib>

#include <catch2/catch.hpp>
#include <zero/cuda/device.hpp>

namespace {

struct device_needed final : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo& /*run*/) override {
    const zero::cuda_devices devices = zero::cuda_device_count();
    if (devices.count > 0) return;
    std::printf("%s\n", devices.reason.c_str());
    std::exit(77);
  }
};

}  // namespace

CATCH_REGISTER_LISTENER(device_needed)
