// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "support/kernel_name.hpp"
#include "support/simulated_device/simulated_device.hpp"

// Host bodies for the kernels of object files that nvcc made. Such a file registers its kernels by
// their names before main, and its own host stubs launch them.

namespace zero::test {

namespace detail {

struct device_code {
  std::size_t argument_bytes = 0;
  kernel_body body;
};

void add_device_code(const std::string& kernel, device_code code);
/// Null for a name that was not added.
const device_code* find_device_code(const std::string& kernel);

}  // namespace detail

/// Says what a launch of the kernel `entry<Body>` does, whichever object file it comes from: as
/// simulate_kernel(), by the name that nvcc registers. That name.
template <class Body>
std::string simulate_device_code(const std::string& entry) {
  const std::string name = kernel_name<Body>(entry);
  detail::add_device_code(name, {sizeof(Body), detail::body_of<Body>()});
  return name;
}

/// Launches of the kernel that have run since the program began; 0 for an unknown name.
std::uint64_t device_code_runs(const std::string& kernel);

}  // namespace zero::test
