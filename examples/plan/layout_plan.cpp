// SPDX-License-Identifier: Apache-2.0
#include "layout_plan.hpp"

#include "formulas.hpp"
#include "program.hpp"
#include "quantities.hpp"
#include "text_table.hpp"

namespace planning {
namespace {

using purpose = zero::planned_buffer::purpose;

/// Refuses what the plan's 64-bit byte counts cannot hold. Counted generously, in double.
void require_representable(const zero::model_layout& layout, const plan_question& question) {
  double padded = 0;
  for (std::uint32_t u = 0; u < layout.unit_count(); ++u) {
    for (const bool trainable : {true, false}) {
      padded += static_cast<double>(layout.flat_elements({u}, trainable)) +
                static_cast<double>(question.ranks) *
                    static_cast<double>(2 * layout.alignment_elements());
    }
  }
  // At most 3 collectives per micro-batch, at most 64 bytes per element in all buffers together.
  const double bytes = padded * 64 * 3 * static_cast<double>(question.micro_batches);
  if (bytes >= 1.8e19) {
    throw example::usage_failure("the layout is too large: its byte counts would leave 64 bits");
  }
}

/// Real bytes follow from what each rank owns. Shards are equal, so padding is what is left of a
/// sum that is the same on every rank.
held_over_ranks spread(const zero::model_layout& layout, const plan_answer& answer) {
  const plan_question& question = answer.question;
  const zero::stage_flags stage = question.stage.flags;
  const zero::element_bytes bytes = question.policy.bytes;
  const zero::held_bytes& held = answer.plan.held;
  weights all;
  std::uint64_t partitioned = 0;
  const auto state = [&](bool is_partitioned, weights per_element, std::uint64_t real) {
    if (!is_partitioned) return extremes{real, real};
    all.trainable += per_element.trainable;
    all.frozen += per_element.frozen;
    partitioned += real;
    return owned_bytes(layout, answer.plan.request, per_element).over_ranks();
  };
  held_over_ranks result;
  result.parameters =
      state(stage.partitions_parameters, {bytes.parameter, bytes.parameter}, held.parameters);
  result.gradients = state(stage.partitions_gradients && answer.plan.keeps_gradients(),
                           {bytes.gradient, 0}, held.gradients);
  result.optimizer =
      state(stage.partitions_optimizer_state, {bytes.optimizer(), 0}, held.optimizer);
  result.accumulation = state(question.mode == zero::accumulation::reduce_every,
                              {bytes.accumulation, 0}, held.accumulation);
  const extremes owned = owned_bytes(layout, answer.plan.request, all).over_ranks();
  const std::uint64_t whole = held.padding + partitioned;
  result.padding = {whole - owned.most, whole - owned.least};
  return result;
}

zero::plan_request request_of(const plan_question& question) {
  // Sums of 16-bit gradients cross the replicas as float.
  return {question.stage.flags,
          question.policy.bytes,
          question.ranks,
          question.rank,
          question.mode,
          question.replicas,
          std::max<std::uint64_t>(question.policy.bytes.gradient, sizeof(float))};
}

std::string where(const zero::model_layout& layout, const zero::planned_buffer& buffer) {
  std::string text = buffer.unit ? std::string(layout.unit_name(*buffer.unit)) : "-";
  if (buffer.what == purpose::moment) text += " #" + std::to_string(buffer.index + 1);
  return text;
}

void add_line(example::text_table& table, const char* state, std::uint64_t here, extremes spread,
              const std::string& formula) {
  table.add({state, std::to_string(here), std::to_string(spread.least), std::to_string(spread.most),
             formula});
}

std::string held_text(const zero::model_layout& layout, const plan_answer& answer) {
  const plan_question& question = answer.question;
  const zero::held_bytes& held = answer.plan.held;
  formula_request request{layout.trainable_elements(), static_cast<std::uint64_t>(question.ranks),
                          question.policy, question.mode, question.micro_batches};
  const stage_formulas formulas = formulas_of(question.stage.flags, request);
  const bool has_frozen = layout.frozen_elements() != 0;
  example::text_table table;
  table.add({"bytes held", "rank " + std::to_string(question.rank), "least", "most", "formula"});
  const held_over_ranks& over = answer.over_ranks;
  std::string parameters = text_of(formulas.parameters);
  if (has_frozen) {
    parameters += " (Psi + Psi_frozen)";
  }
  add_line(table, "parameters", held.parameters, over.parameters, parameters);
  add_line(table, "gradients", held.gradients, over.gradients, text_of(formulas.gradients));
  add_line(table, "optimizer", held.optimizer, over.optimizer, text_of(formulas.optimizer));
  add_line(table, "accumulation", held.accumulation, over.accumulation,
           text_of(formulas.accumulation));
  add_line(table, "padding", held.padding, over.padding, "");
  add_line(table, "transient", held.transient, {held.transient, held.transient}, "");
  add_line(table, "total", held.total(), {held.total(), held.total()},
           readable_bytes(held.total()));
  return table.text();
}

std::string moved_text(const zero::model_layout& layout, const plan_answer& answer) {
  const zero::moved_elements& moved = answer.moved;
  const zero::volume_formula volume = zero::volume_of(
      answer.question.stage.flags, answer.question.micro_batches, answer.question.mode);
  std::string formula = text_of(volume);
  if (layout.frozen_elements() != 0 && volume.all_gather_frozen != 0) {
    formula += " + " + std::to_string(volume.all_gather_frozen) + " Psi_frozen";
  }
  example::text_table table;
  table.add({"moved in a step", "", ""});
  table.add({"reduce-scatter", std::to_string(moved.reduce_scatter), "elements"});
  table.add({"all-gather", std::to_string(moved.all_gather), "elements"});
  table.add({"total", std::to_string(moved.total()), "elements = " + formula});
  if (answer.question.replicas > 1) {
    table.add({"across replicas", std::to_string(moved.crossing), "elements, 2 x the own shards"});
  }
  table.add({"padding", std::to_string(moved.padding), "elements"});
  table.add({"sent by a rank", std::to_string(moved.wire_bytes), "bytes, padding included"});
  return table.text();
}

std::string buffers_text(const zero::model_layout& layout, const plan_answer& answer) {
  example::text_table table(2);
  table.add({"buffer", "unit", "offset", "bytes", "padding"});
  for (const zero::planned_buffer& buffer : answer.plan.buffers) {
    table.add({std::string(name_of(buffer.what)), where(layout, buffer),
               std::to_string(buffer.offset_bytes), std::to_string(buffer.real_bytes),
               std::to_string(buffer.padding_bytes)});
  }
  return table.text();
}

std::string collectives_text(const zero::model_layout& layout, const plan_answer& answer) {
  example::text_table table(4);
  table.add({"collective", "phase", "unit", "tensors", "elements", "padding", "bytes each"});
  for (const zero::planned_collective& collective : answer.collectives) {
    table.add({std::string(name_of(collective.what)), std::string(name_of(collective.when)),
               std::string(layout.unit_name(collective.unit)),
               collective.trainable ? "trainable" : "frozen", std::to_string(collective.elements),
               std::to_string(collective.padding), std::to_string(collective.element_bytes)});
  }
  return table.text();
}

}  // namespace

bool plan_answer::is_consistent() const noexcept {
  std::uint64_t elements = 0;
  for (const zero::planned_collective& collective : collectives) elements += collective.elements;
  return plan.held == estimate && elements == moved.total() + moved.crossing;
}

plan_answer answer(const zero::model_layout& layout, const plan_question& question) {
  require_representable(layout, question);
  const zero::plan_request request = request_of(question);
  const zero::rank_estimate estimate(layout, request);
  plan_answer result{.question = question,
                     .plan = zero::make_plan(layout, request),
                     .estimate = estimate.held(),
                     .moved = estimate.moved(question.micro_batches),
                     .collectives = {},
                     .over_ranks = {}};
  result.collectives = zero::step_collectives(layout, result.plan, question.micro_batches);
  result.over_ranks = spread(layout, result);
  return result;
}

std::string_view name_of(purpose what) noexcept {
  switch (what) {
    case purpose::parameters:
      return "parameters";
    case purpose::frozen_parameters:
      return "frozen_parameters";
    case purpose::gradients:
      return "gradients";
    case purpose::master:
      return "master";
    case purpose::moment:
      return "moment";
    case purpose::accumulation:
      return "accumulation";
    case purpose::gathered_parameters:
      return "gathered_parameters";
    case purpose::unreduced_gradients:
      return "unreduced_gradients";
    case purpose::shared_parameters:
      return "shared_parameters";
    case purpose::shared_gradients:
      return "shared_gradients";
    case purpose::scratch_shard:
      return "scratch_shard";
    case purpose::crossing_shard:
      return "crossing_shard";
    case purpose::control:
      return "control";
  }
  return "?";
}

std::string_view name_of(zero::planned_collective::operation operation) noexcept {
  using kind = zero::planned_collective::operation;
  switch (operation) {
    case kind::reduce_scatter:
      return "reduce_scatter";
    case kind::all_gather:
      return "all_gather";
    case kind::crossing_reduce_scatter:
      return "crossing_reduce_scatter";
    case kind::crossing_all_gather:
      return "crossing_all_gather";
  }
  return "?";
}

std::string_view name_of(zero::planned_collective::phase phase) noexcept {
  switch (phase) {
    case zero::planned_collective::phase::forward:
      return "forward";
    case zero::planned_collective::phase::backward:
      return "backward";
    case zero::planned_collective::phase::update:
      return "update";
  }
  return "?";
}

std::string plan_text(const zero::model_layout& layout, const plan_answer& answer, bool lists) {
  const plan_question& question = answer.question;
  std::string text =
      "stage " + std::string(question.stage.name) + ", " + std::string(question.policy.precision) +
      " with " + std::string(question.policy.optimizer) +
      ", N = " + std::to_string(question.ranks) +
      (question.replicas > 1 ? " in each of " + std::to_string(question.replicas) + " replicas"
                             : "") +
      ", " + std::to_string(layout.unit_count()) + " units, " +
      std::to_string(layout.tensor_count()) +
      " tensors, Psi = " + std::to_string(layout.trainable_elements());
  if (layout.frozen_elements() != 0) {
    text += ", Psi_frozen = " + std::to_string(layout.frozen_elements());
  }
  text += "\n\n" + held_text(layout, answer) + "\n" + moved_text(layout, answer);
  if (!lists) return text;
  text += "\narena: " + std::to_string(answer.plan.arena_bytes) + " bytes\n" +
          buffers_text(layout, answer);
  if (!answer.collectives.empty()) {
    text += "\ncollectives of a step, in order\n" + collectives_text(layout, answer);
  }
  return text;
}

layout_budget fit(const zero::model_layout& layout, plan_question question,
                  std::uint64_t budget_bytes) {
  require_representable(layout, question);
  layout_budget budget{question, budget_bytes, {}, {}};
  for (const named_stage& stage : stages_with(question.mode)) {
    question.stage = stage;
    const zero::held_bytes held = zero::make_plan(layout, request_of(question)).held;
    const bool fits = held.total() <= budget_bytes;
    if (fits && budget.smallest_stage.empty()) budget.smallest_stage = stage.name;
    budget.lines.push_back({stage.name, held, fits});
  }
  return budget;
}

std::string budget_text(const layout_budget& budget) {
  example::text_table table;
  table.add(
      {"stage", "model states", "accumulation", "padding", "transient", "total bytes", "fits"});
  for (const auto& [stage, held, fits] : budget.lines) {
    table.add({std::string(stage), std::to_string(held.model_states()),
               std::to_string(held.accumulation), std::to_string(held.padding),
               std::to_string(held.transient), std::to_string(held.total()), fits ? "yes" : "no"});
  }
  return std::to_string(budget.budget_bytes) +
         " bytes per rank, N = " + std::to_string(budget.question.ranks) + ", rank " +
         std::to_string(budget.question.rank) + "\n" + table.text() +
         (budget.smallest_stage.empty()
              ? "no stage fits"
              : "smallest stage that fits: " + std::string(budget.smallest_stage)) +
         "\n";
}

}  // namespace planning
