// SPDX-License-Identifier: Apache-2.0
#include "support/simulated_device/nccl_running_device.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "support/simulated_device/machine.hpp"

namespace zero::test {
namespace {

void run_device(const std::atomic<bool>& is_over) {
  auto& m = simulated::machine::instance();
  while (!is_over) {
    bool is_idle = true;
    {
      const auto lock = m.lock();
      for (std::uint64_t left = 1 + m.random(16); left > 0 && m.step(); --left) is_idle = false;
    }
    if (is_idle) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

running_device::running_device() : thread_([this] { run_device(is_over_); }) {}

running_device::~running_device() {
  is_over_ = true;
  thread_.join();
}

}  // namespace zero::test
