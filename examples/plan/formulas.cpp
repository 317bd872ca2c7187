// SPDX-License-Identifier: Apache-2.0
#include "formulas.hpp"

#include "quantities.hpp"
#include "text_table.hpp"

namespace planning {
namespace {

// Element sizes: parameter, gradient, accumulation, master, moment, moments.
constexpr zero::element_bytes megatron_bytes{2, 4, 4, 4, 4, 2};
/// Stages 1 and 2 copy the 16-bit gradient to fp32 before the update; like the master, the copy is
/// partitioned.
constexpr zero::element_bytes deepspeed_bytes{2, 2, 4, 4 + 4, 4, 2};
/// What its estimator counts for stage 3: no lasting 16-bit gradient.
constexpr zero::element_bytes deepspeed3_bytes{2, 0, 4, 4 + 4, 4, 2};

std::string term(std::uint64_t factor, const char* unit) {
  return factor == 0 ? "" : std::to_string(factor) + " " + unit;
}

std::string heading(const formula_request& request) {
  const zero::element_bytes bytes = request.policy.bytes;
  return std::to_string(request.ranks) + " ranks, " + std::string(request.policy.precision) +
         " with " + std::string(request.policy.optimizer) + ": " + std::to_string(bytes.parameter) +
         " + " + std::to_string(bytes.gradient) + " + " + std::to_string(bytes.optimizer()) +
         " bytes per element (parameter, gradient, optimizer)\n";
}

std::string gigabytes(const share& amount) {
  return decimal(amount.whole, 1'000'000'000, 2);
}

}  // namespace

std::string share::text() const {
  const std::string fraction = decimal(rest, ranks, 1);  // "0", "0.x" or, rounded, "1"
  if (fraction.size() == 1)
    return std::to_string(whole + (fraction == "1" ? 1 : 0));
  return std::to_string(whole) + fraction.substr(1);
}

share share_of(zero::state_formula formula, std::uint64_t psi, std::uint64_t ranks) {
  const std::uint64_t partitioned = formula.partitioned * psi;
  return {formula.replicated * psi + partitioned / ranks, partitioned % ranks, ranks};
}

std::string text_of(zero::state_formula formula) {
  const std::string replicated = term(formula.replicated, "Psi");
  const std::string partitioned = term(formula.partitioned, "Psi/N");
  if (replicated.empty() && partitioned.empty())
    return "0";
  if (replicated.empty() || partitioned.empty())
    return replicated + partitioned;
  return replicated + " + " + partitioned;
}

std::string text_of(zero::volume_formula volume) {
  return term(volume.reduce_scatter_trainable + volume.all_gather_trainable, "Psi");
}

zero::state_formula operator+(zero::state_formula a, zero::state_formula b) noexcept {
  return {a.replicated + b.replicated, a.partitioned + b.partitioned};
}

zero::state_formula stage_formulas::total() const noexcept {
  return parameters + gradients + optimizer + accumulation + kept_gathered;
}

stage_formulas formulas_of(zero::stage_flags stage, const formula_request& request) {
  using zero::accumulation;
  const bool every = request.mode == accumulation::reduce_every;
  if (every && !stage.partitions_optimizer_state) {
    throw zero::usage_error("reduce_every needs a stage that partitions something (1 to 3)");
  }
  const zero::element_bytes bytes = request.policy.bytes;
  stage_formulas formulas;
  formulas.parameters = zero::formula_of(stage, {.parameter = bytes.parameter});
  // Where shards are summed up in accumulation_type there is no second shard of gradients.
  if (!(stage.partitions_gradients && every)) {
    formulas.gradients = zero::formula_of(stage, {.gradient = bytes.gradient});
  }
  formulas.optimizer = zero::formula_of(
      stage, {.master = bytes.master, .moment = bytes.moment, .moments = bytes.moments});
  if (request.mode == accumulation::reduce_last) {
    formulas.accumulation.replicated = bytes.accumulation;
  } else if (every) {
    formulas.accumulation.partitioned = bytes.accumulation;
  }
  if (stage.partitions_parameters && !stage.reshards_after_forward && request.ranks > 1) {
    formulas.kept_gathered.replicated = bytes.parameter;
  }
  formulas.moved = zero::volume_of(stage, request.micro_batches, request.mode);
  return formulas;
}

std::uint64_t moved_elements(const stage_formulas& formulas, const formula_request& request) {
  return request.ranks == 1 ? 0 : formulas.moved.elements(request.psi);
}

const std::vector<other_system>& other_systems() {
  constexpr zero::stage_flags stage1 = zero::flags_of<zero::stage1>();
  constexpr zero::stage_flags stage2 = zero::flags_of<zero::stage2>();
  constexpr zero::stage_flags stage3 = zero::flags_of<zero::stage3>();
  static const std::vector<other_system> systems{
      {"Megatron-LM distributed optimizer", zero::formula_of(stage1, megatron_bytes), 2},
      {"DeepSpeed stage 1", zero::formula_of(stage1, deepspeed_bytes), 3},
      {"DeepSpeed stage 2", zero::formula_of(stage2, deepspeed_bytes), 3},
      {"DeepSpeed stage 3, plus 4 x largest layer", zero::formula_of(stage3, deepspeed3_bytes), 3}};
  return systems;
}

std::vector<named_stage> stages_with(zero::accumulation mode) {
  std::vector<named_stage> fitting;
  for (const named_stage& stage : stages) {
    if (mode != zero::accumulation::reduce_every || stage.flags.partitions_optimizer_state) {
      fitting.push_back(stage);
    }
  }
  return fitting;
}

std::optional<std::string_view> smallest_stage(const formula_request& request,
                                               std::uint64_t budget_bytes) {
  for (const named_stage& stage : stages_with(request.mode)) {
    const zero::state_formula total = formulas_of(stage.flags, request).total();
    if (share_of(total, request.psi, request.ranks).rounded_up() <= budget_bytes) {
      return stage.name;
    }
  }
  return std::nullopt;
}

std::string formulas_text(const formula_request& request, const std::vector<named_stage>& chosen,
                          bool with_other_systems) {
  example::text_table table;
  table.add({"stage", "parameters", "gradients", "optimizer", "accumulation", "kept gathered",
             "total bytes", "GB", "moved elements", "held", "moved"});
  for (const named_stage& stage : chosen) {
    const stage_formulas formulas = formulas_of(stage.flags, request);
    const auto bytes = [&](zero::state_formula formula) {
      return share_of(formula, request.psi, request.ranks);
    };
    table.add({std::string(stage.name), bytes(formulas.parameters).text(),
               bytes(formulas.gradients).text(), bytes(formulas.optimizer).text(),
               bytes(formulas.accumulation).text(), bytes(formulas.kept_gathered).text(),
               bytes(formulas.total()).text(), gigabytes(bytes(formulas.total())),
               std::to_string(moved_elements(formulas, request)), text_of(formulas.total()),
               text_of(formulas.moved)});
  }
  std::string text = "Psi = " + std::to_string(request.psi) +
                     " parameters, N = " + heading(request) +
                     "Bytes held per rank, elements moved per step; padding "
                     "and units in flight come on top\n" +
                     table.text();
  if (!with_other_systems)
    return text;
  example::text_table others;
  others.add({"other systems", "total bytes", "GB", "held", "moved"});
  for (const other_system& system : other_systems()) {
    const share held = share_of(system.held, request.psi, request.ranks);
    others.add({std::string(system.name), held.text(), gigabytes(held), text_of(system.held),
                term(system.moved, "Psi")});
  }
  return text + "\n" + others.text();
}

std::string budget_text(const formula_request& request, std::uint64_t budget_bytes) {
  example::text_table table;
  std::vector<std::string> header{"stage", "largest model", "held"};
  if (request.psi != 0)
    header.insert(header.end(), {"needs", "fits"});
  table.add(header);
  for (const named_stage& stage : stages_with(request.mode)) {
    const zero::state_formula total = formulas_of(stage.flags, request).total();
    std::vector<std::string> row{std::string(stage.name),
                                 std::to_string(total.largest_model(budget_bytes, request.ranks)),
                                 text_of(total)};
    if (request.psi != 0) {
      const share need = share_of(total, request.psi, request.ranks);
      row.push_back(need.text());
      row.push_back(need.rounded_up() <= budget_bytes ? "yes" : "no");
    }
    table.add(row);
  }
  std::string text = std::to_string(budget_bytes) + " bytes per rank, N = " + heading(request) +
                     "Model states only: padding and units in flight come on top\n" + table.text();
  if (request.psi != 0) {
    const auto stage = smallest_stage(request, budget_bytes);
    text += stage ? "smallest stage that holds " + std::to_string(request.psi) +
                        " parameters: " + std::string(*stage) + "\n"
                  : "no stage holds " + std::to_string(request.psi) + " parameters\n";
  }
  return text;
}

}  // namespace planning
