// SPDX-License-Identifier: Apache-2.0
#include "training_step.hpp"

namespace {
[[maybe_unused]] const bool is_added = step_bench::add_stages<zero::fp32>();
}
