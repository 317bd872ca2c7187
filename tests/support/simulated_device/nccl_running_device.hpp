// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

namespace zero::test {

/// Lets the simulated device run by itself while it exists, as a real one does.
///
/// Without it work runs when host threads wait or look, so ranks that wait for each other
/// elsewhere, in a store for one, leave it to the few that look. With it host threads and seeds do
/// not decide alone, and runs do not repeat.
class running_device {
 public:
  running_device();
  ~running_device();
  running_device(const running_device&) = delete;
  running_device& operator=(const running_device&) = delete;

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace zero::test
