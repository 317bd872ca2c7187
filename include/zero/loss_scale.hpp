// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

/// How the loss scale of fp16 moves. Powers of two keep the scaling itself exact.
struct loss_scale_options {
  double initial = 65536.0;
  double growth = 2.0;
  double backoff = 0.5;
  std::uint64_t window = 2000;  ///< finite steps in a row before the scale grows
  double minimum = 1.0;
  double maximum = 16777216.0;
};

}  // namespace zero
