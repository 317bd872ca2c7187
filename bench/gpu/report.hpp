// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpu_bench {

/// One kernel against its yardstick; seconds are medians of samples taken in turn.
struct kernel_row {
  std::string name;
  std::uint64_t elements = 0;
  double bytes = 0;         ///< read and written by one run
  double seconds = 0;       ///< of one run
  double copy_seconds = 0;  ///< of a device-to-device copy that reads and writes as many bytes
  bool has_goal = false;    ///< one of those that should reach 90 % of the copy
};

/// Training steps without a model: what the library adds to one.
struct step_row {
  std::string stage;
  int ranks = 0;          ///< all on one device
  std::uint64_t psi = 0;  ///< parameters
  double seconds = 0;     ///< per step, of the slowest rank
};

/// Measures all kernels over about `elements` elements. Throws: cuda_error.
std::vector<kernel_row> measure_kernels(std::uint64_t elements);
/// Measures steps at every stage that was compiled, with 1 and 4 ranks. Throws: zero::error.
std::vector<step_row> measure_steps(std::uint64_t psi);

}  // namespace gpu_bench
