// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <zero/estimate.hpp>

#include "policies.hpp"

// What the paper's formulas say, without a layout: no padding, no buffers for units in flight.
namespace planning {

/// What all lines of one answer have in common.
struct formula_request {
  std::uint64_t psi = 0;
  std::uint64_t ranks = 1;
  named_policy policy;
  zero::accumulation mode = zero::accumulation::none;
  std::uint64_t micro_batches = 1;
};

/// An amount per rank that need not be whole: `whole` + `rest` / N.
struct share {
  std::uint64_t whole = 0;
  std::uint64_t rest = 0;
  std::uint64_t ranks = 1;

  /// At most one decimal.
  std::string text() const;
  std::uint64_t rounded_up() const noexcept { return whole + (rest == 0 ? 0 : 1); }
  double value() const noexcept {
    return static_cast<double>(whole) + static_cast<double>(rest) / static_cast<double>(ranks);
  }
};

/// replicated x Psi + partitioned x Psi / N, without the detour over all ranks' bytes.
share share_of(zero::state_formula formula, std::uint64_t psi, std::uint64_t ranks);

/// "4 Psi + 12 Psi/N"
std::string text_of(zero::state_formula formula);
/// "3 Psi"
std::string text_of(zero::volume_formula volume);

zero::state_formula operator+(zero::state_formula a, zero::state_formula b) noexcept;

/// The formulas of one stage by state.
struct stage_formulas {
  zero::state_formula parameters;
  zero::state_formula gradients;
  zero::state_formula optimizer;
  zero::state_formula accumulation;
  /// Parameters that stay gathered from forward to backward; none with one rank, where they
  /// are the shard itself.
  zero::state_formula kept_gathered;
  zero::volume_formula moved;

  zero::state_formula total() const noexcept;
};

/// Throws: zero::usage_error for reduce_every at a stage that partitions nothing.
stage_formulas formulas_of(zero::stage_flags stage, const formula_request& request);

/// Elements that one rank's collectives move in a step; none with one rank.
std::uint64_t moved_elements(const stage_formulas& formulas, const formula_request& request);

/// What one rank of another system holds and moves, for comparison.
struct other_system {
  std::string_view name;
  zero::state_formula held;
  std::uint64_t moved = 0;  ///< multiples of Psi per step
};
const std::vector<other_system>& other_systems();

/// The stages that can accumulate in this mode: reduce_every needs one that partitions something.
std::vector<named_stage> stages_with(zero::accumulation mode);

/// The first of stages 0 to 3 whose states fit into the budget.
std::optional<std::string_view> smallest_stage(const formula_request& request,
                                               std::uint64_t budget_bytes);

/// One line per stage. `stages` empty: all of them.
std::string formulas_text(const formula_request& request, const std::vector<named_stage>& stages,
                          bool with_other_systems);
/// The largest model per stage and, with request.psi != 0, what fits.
std::string budget_text(const formula_request& request, std::uint64_t budget_bytes);

}  // namespace planning
