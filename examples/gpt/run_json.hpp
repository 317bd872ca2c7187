// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "run_record.hpp"

namespace gpt {

/// The runs as an array of rows of schema zero.training_run/1, each object's fields in a fixed
/// order. Where a run has several micro-batches, `held` and `predicted` have a sixth field:
/// accumulation, the bytes of the sums over micro-batches.
std::string to_json(std::span<const run_record> records);

}  // namespace gpt
