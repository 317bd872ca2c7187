// SPDX-License-Identifier: Apache-2.0
// In place of device_needed.cpp where the programs of tests/gpu run on the simulated device: each
// test case has a machine of its own.
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // declares listeners
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <catch2/catch.hpp>

#include "support/simulated_device/simulated_device.hpp"

namespace {

struct simulated_run final : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& /*test*/) override {
    device_.emplace(zero::test::simulated_device_options{.seed = ++cases_,
                                                         .patience = std::chrono::seconds(20)});
  }
  void testCaseEnded(const Catch::TestCaseStats& /*test*/) override {
    const auto findings = device_->findings();
    for (const std::string& finding : findings) std::printf("found %s\n", finding.c_str());
    if (!findings.empty()) std::exit(1);
    device_.reset();
  }

 private:
  std::uint64_t cases_ = 0;
  std::optional<zero::test::simulated_device> device_;
};

}  // namespace

CATCH_REGISTER_LISTENER(simulated_run)
