// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zero/estimate.hpp>
#include <zero/plan.hpp>

#include "owned_bytes.hpp"
#include "policies.hpp"

// The engine's own plan of a layout, with what lies in it and what a step sends.
namespace planning {

struct plan_question {
  named_stage stage;
  named_policy policy;
  int ranks = 1;
  int rank = 0;
  zero::accumulation mode = zero::accumulation::none;
  std::uint64_t micro_batches = 1;
  int replicas = 1;  ///< groups of `ranks` ranks that hold the same shards
};

/// Smallest and largest number of bytes that a rank holds, by state.
struct held_over_ranks {
  extremes parameters;
  extremes gradients;
  extremes optimizer;
  extremes accumulation;
  extremes padding;
};

/// Everything that the reports print.
struct plan_answer {
  plan_question question;
  zero::plan plan;
  zero::held_bytes estimate;   ///< the formulas' prediction of plan.held
  zero::moved_elements moved;  ///< of one step
  std::vector<zero::planned_collective> collectives;
  held_over_ranks over_ranks;

  /// What zero::plan says and what the formulas say must be the same.
  bool is_consistent() const noexcept;
};

/// Throws: example::usage_failure where byte counts would leave 64 bits; zero::usage_error for a
/// rank outside, or an accumulation mode that the stage cannot have.
plan_answer answer(const zero::model_layout& layout, const plan_question& question);

std::string_view name_of(zero::planned_buffer::purpose purpose) noexcept;
std::string_view name_of(zero::planned_collective::operation operation) noexcept;
std::string_view name_of(zero::planned_collective::phase phase) noexcept;

/// Totals by state; with `lists` every buffer and every collective as well.
std::string plan_text(const zero::model_layout& layout, const plan_answer& answer, bool lists);

/// What each stage would hold, padding and units in flight included.
struct layout_budget {
  struct line {
    std::string_view stage;
    zero::held_bytes held;
    bool fits = false;
  };
  plan_question question;
  std::uint64_t budget_bytes = 0;
  std::vector<line> lines;
  std::string_view smallest_stage;  ///< the first that fits, empty when none does
};

/// Plans every stage that has the question's accumulation mode. Throws: as answer().
layout_budget fit(const zero::model_layout& layout, plan_question question,
                  std::uint64_t budget_bytes);
std::string budget_text(const layout_budget& budget);

}  // namespace planning
