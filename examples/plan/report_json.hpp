// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <zero/layout.hpp>

#include "formulas.hpp"
#include "layout_plan.hpp"

// What --json writes. Numbers of bytes and elements are exact; where a rank's mean share is not
// whole, the bytes of all ranks together stand beside it.
namespace planning {

std::string table1_json();
std::string table2_json();
std::string formulas_json(const formula_request& request, const std::vector<named_stage>& stages,
                          bool with_other_systems);
std::string budget_json(const formula_request& request, std::uint64_t budget_bytes);
std::string budget_json(const layout_budget& budget);
std::string plan_json(const zero::model_layout& layout, const plan_answer& answer);

}  // namespace planning
