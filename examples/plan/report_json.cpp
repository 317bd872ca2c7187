// SPDX-License-Identifier: Apache-2.0
#include "report_json.hpp"

#include <nlohmann/json.hpp>

#include "paper_tables.hpp"

namespace planning {
namespace {

using json = nlohmann::ordered_json;

std::string text_of(const json& value) {
  return value.dump(1) + "\n";
}

json number(const share& amount) {
  if (amount.rest == 0) return amount.whole;
  return amount.value();
}

json policy_json(const named_policy& policy) {
  const zero::element_bytes& bytes = policy.bytes;
  return {{"precision", policy.precision},
          {"optimizer", policy.optimizer},
          {"element_bytes",
           {{"parameter", bytes.parameter},
            {"gradient", bytes.gradient},
            {"accumulation", bytes.accumulation},
            {"master", bytes.master},
            {"moments", bytes.moments * bytes.moment}}}};
}

json formula_json(zero::state_formula formula) {
  return {{"replicated", formula.replicated},
          {"partitioned", formula.partitioned},
          {"text", planning::text_of(formula)}};
}

const char* name_of_mode(zero::accumulation mode) {
  switch (mode) {
    case zero::accumulation::none:
      return "none";
    case zero::accumulation::reduce_last:
      return "reduce_last";
    case zero::accumulation::reduce_every:
      return "reduce_every";
  }
  return "?";
}

json stage_json(const named_stage& stage, const formula_request& request) {
  const stage_formulas formulas = formulas_of(stage.flags, request);
  const auto bytes = [&](zero::state_formula formula) {
    return number(share_of(formula, request.psi, request.ranks));
  };
  return {{"stage", stage.name},
          {"held",
           {{"parameters", bytes(formulas.parameters)},
            {"gradients", bytes(formulas.gradients)},
            {"optimizer", bytes(formulas.optimizer)},
            {"accumulation", bytes(formulas.accumulation)},
            {"kept_gathered", bytes(formulas.kept_gathered)},
            {"total", bytes(formulas.total())}}},
          {"held_formula", formula_json(formulas.total())},
          {"moved",
           {{"total", moved_elements(formulas, request)},
            {"text", planning::text_of(formulas.moved)}}}};
}

json held_json(const zero::held_bytes& held) {
  return {{"parameters", held.parameters}, {"gradients", held.gradients},
          {"optimizer", held.optimizer},   {"accumulation", held.accumulation},
          {"padding", held.padding},       {"transient", held.transient},
          {"total", held.total()}};
}

json over_ranks_json(const held_over_ranks& over) {
  const auto pair = [](extremes values) {
    return json{{"least", values.least}, {"most", values.most}};
  };
  return {{"parameters", pair(over.parameters)},
          {"gradients", pair(over.gradients)},
          {"optimizer", pair(over.optimizer)},
          {"accumulation", pair(over.accumulation)},
          {"padding", pair(over.padding)}};
}

json buffers_json(const zero::model_layout& layout, const plan_answer& answer) {
  json buffers = json::array();
  for (const zero::planned_buffer& buffer : answer.plan.buffers) {
    json unit = nullptr;
    if (buffer.unit) unit = layout.unit_name(*buffer.unit);
    buffers.push_back({{"purpose", name_of(buffer.what)},
                       {"unit", unit},
                       {"index", buffer.index},
                       {"offset_bytes", buffer.offset_bytes},
                       {"real_bytes", buffer.real_bytes},
                       {"padding_bytes", buffer.padding_bytes}});
  }
  return buffers;
}

json collectives_json(const zero::model_layout& layout, const plan_answer& answer) {
  json collectives = json::array();
  for (const zero::planned_collective& collective : answer.collectives) {
    collectives.push_back({{"operation", name_of(collective.what)},
                           {"phase", name_of(collective.when)},
                           {"unit", layout.unit_name(collective.unit)},
                           {"trainable", collective.trainable},
                           {"elements", collective.elements},
                           {"padding_elements", collective.padding},
                           {"element_bytes", collective.element_bytes}});
  }
  return collectives;
}

}  // namespace

std::string table1_json() {
  json rows = json::array();
  for (const table1_cell& cell : table1()) {
    rows.push_back({{"ranks", cell.ranks},
                    {"model", cell.model},
                    {"psi", cell.psi},
                    {"stage", cell.stage},
                    {"bytes_per_rank", number({cell.all_ranks_bytes / cell.ranks,
                                               cell.all_ranks_bytes % cell.ranks, cell.ranks})},
                    {"bytes_all_ranks", cell.all_ranks_bytes},
                    {"printed", cell.printed()}});
  }
  return text_of({{"schema", "zero.table1/1"}, {"cells", rows}});
}

std::string table2_json() {
  json rows = json::array();
  for (const table2_cell& cell : table2()) {
    rows.push_back({{"model_parallel", cell.model_parallel},
                    {"ranks", table2_cell::ranks},
                    {"stage", cell.stage},
                    {"budget_bytes", table2_cell::budget_bytes},
                    {"psi", cell.psi},
                    {"printed", cell.printed()}});
  }
  return text_of({{"schema", "zero.table2/1"}, {"cells", rows}});
}

std::string formulas_json(const formula_request& request, const std::vector<named_stage>& chosen,
                          bool with_other_systems) {
  json rows = json::array();
  for (const named_stage& stage : chosen) rows.push_back(stage_json(stage, request));
  json result{{"schema", "zero.formulas/1"},
              {"psi", request.psi},
              {"ranks", request.ranks},
              {"policy", policy_json(request.policy)},
              {"accumulation", name_of_mode(request.mode)},
              {"micro_batches", request.micro_batches},
              {"stages", rows}};
  if (with_other_systems) {
    json others = json::array();
    for (const other_system& system : other_systems()) {
      others.push_back({{"name", system.name},
                        {"held", number(share_of(system.held, request.psi, request.ranks))},
                        {"held_formula", formula_json(system.held)},
                        {"moved_psi", system.moved}});
    }
    result["other_systems"] = others;
  }
  return text_of(result);
}

std::string budget_json(const formula_request& request, std::uint64_t budget_bytes) {
  json rows = json::array();
  for (const named_stage& stage : stages_with(request.mode)) {
    const zero::state_formula total = formulas_of(stage.flags, request).total();
    rows.push_back({{"stage", stage.name},
                    {"largest_psi", total.largest_model(budget_bytes, request.ranks)},
                    {"held_formula", formula_json(total)}});
  }
  json result{{"schema", "zero.budget/1"},
              {"budget_bytes", budget_bytes},
              {"ranks", request.ranks},
              {"policy", policy_json(request.policy)},
              {"stages", rows}};
  if (request.psi != 0) {
    const auto smallest = smallest_stage(request, budget_bytes);
    result["psi"] = request.psi;
    result["smallest_stage"] = smallest ? json(*smallest) : json(nullptr);
  }
  return text_of(result);
}

std::string budget_json(const layout_budget& budget) {
  json rows = json::array();
  for (const auto& [stage, held, fits] : budget.lines) {
    rows.push_back({{"stage", stage}, {"held", held_json(held)}, {"fits", fits}});
  }
  json smallest = nullptr;
  if (!budget.smallest_stage.empty()) smallest = budget.smallest_stage;
  return text_of({{"schema", "zero.layout_budget/1"},
                  {"budget_bytes", budget.budget_bytes},
                  {"ranks", budget.question.ranks},
                  {"rank", budget.question.rank},
                  {"policy", policy_json(budget.question.policy)},
                  {"stages", rows},
                  {"smallest_stage", smallest}});
}

std::string plan_json(const zero::model_layout& layout, const plan_answer& answer) {
  const plan_question& question = answer.question;
  const zero::moved_elements& moved = answer.moved;
  return text_of({{"schema", "zero.plan/1"},
                  {"stage", question.stage.name},
                  {"policy", policy_json(question.policy)},
                  {"ranks", question.ranks},
                  {"replicas", question.replicas},
                  {"rank", question.rank},
                  {"accumulation", name_of_mode(question.mode)},
                  {"micro_batches", question.micro_batches},
                  {"psi", layout.trainable_elements()},
                  {"psi_frozen", layout.frozen_elements()},
                  {"arena_bytes", answer.plan.arena_bytes},
                  {"held", held_json(answer.plan.held)},
                  {"over_ranks", over_ranks_json(answer.over_ranks)},
                  {"moved",
                   {{"reduce_scatter", moved.reduce_scatter},
                    {"all_gather", moved.all_gather},
                    {"crossing", moved.crossing},
                    {"all_reduce", moved.all_reduce},
                    {"padding", moved.padding},
                    {"total", moved.total()},
                    {"wire_bytes", moved.wire_bytes}}},
                  {"buffers", buffers_json(layout, answer)},
                  {"collectives", collectives_json(layout, answer)}});
}

}  // namespace planning
