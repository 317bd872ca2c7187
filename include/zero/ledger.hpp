// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zero/model_state.hpp>

namespace zero {

/// What an engine really holds and really moved on this rank; `estimate.hpp` predicts the same
/// numbers and tests require equality.
///
/// Traffic stands on lines of its own: only `step` is covered by the paper's volume.
struct ledger {
  held_bytes held;                ///< handed out by the arena at construction
  moved_elements step;            ///< the last finished step with its passes
  moved_elements initialization;  ///< initialize, import, export
  moved_elements evaluation;      ///< evaluation passes
  moved_elements fingerprint;     ///< the comparison of the ranks at construction
};

}  // namespace zero
