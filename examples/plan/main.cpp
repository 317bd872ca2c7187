// SPDX-License-Identifier: Apache-2.0
// zero-plan: what ZeRO training of a model will hold and move, before any of it runs.

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "formulas.hpp"
#include "gpt_layout.hpp"
#include "layout_json.hpp"
#include "layout_plan.hpp"
#include "paper_tables.hpp"
#include "policies.hpp"
#include "program.hpp"
#include "quantities.hpp"
#include "report_json.hpp"

namespace {

using example::exit_code;

struct settings {
  bool table1 = false;
  bool table2 = false;
  std::string params;
  std::string layout;
  std::string gpt;
  std::string budget;
  int ranks = 0;
  int replicas = 1;
  int rank = 0;
  std::string stage;
  std::string precision = "bf16_mixed";
  std::string optimizer = "adamw";
  std::string accumulation = "none";
  std::uint64_t micro_batches = 1;
  std::uint64_t alignment_bytes = zero::layout_options{}.alignment_bytes;
  bool others = false;
  bool summary = false;
  std::string json;
};

void describe(CLI::App& app, settings& chosen) {
  app.add_flag("--table1", chosen.table1, "Table 1 of the ZeRO paper, in its digits");
  app.add_flag("--table2", chosen.table2, "Table 2 of the ZeRO paper (theory), in its digits");
  app.add_option("--params", chosen.params, "Formulas for so many parameters: 7.5e9, 7.5B, 1T");
  app.add_option("--layout", chosen.layout, "The engine's exact plan of a zero.layout/1 file");
  app.add_option("--gpt", chosen.gpt,
                 "Use a GPT's layout: LAYERS,WIDTH,VOCAB,CONTEXT. Without --ranks it is printed");
  app.add_option("--budget", chosen.budget,
                 "What fits into so much memory per rank: 80GB is 80 x 10^9, 80GiB 80 x 2^30. "
                 "Exit code 1 when the given model does not");
  app.add_option("--ranks", chosen.ranks, "Number of ranks N")->check(CLI::Range(1, 10'000'000));
  app.add_option("--replicas", chosen.replicas,
                 "With a layout: so many groups of N ranks hold the same shards (zero::hybrid)")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--rank", chosen.rank, "Plan this rank")->check(CLI::Range(0, 9'999'999));
  app.add_option("--stage", chosen.stage, "0, 1, 2, 3 or 3_keep_gathered");
  app.add_option("--precision", chosen.precision,
                 "bf16_mixed, fp16_mixed, bf16_mixed_fp32_gradients, bf16_remainder or fp32")
      ->capture_default_str();
  app.add_option("--optimizer", chosen.optimizer, "adamw, adam, sgd or lion")
      ->capture_default_str();
  app.add_option("--accumulation", chosen.accumulation, "How micro-batches become one gradient")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "reduce_last", "reduce_every"}));
  app.add_option("--micro-batches", chosen.micro_batches, "Micro-batches per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--alignment", chosen.alignment_bytes,
                 "Tensors start at multiples of so many bytes")
      ->capture_default_str()
      ->check(CLI::Range(2, 4096));
  app.add_flag("--others", chosen.others, "With --params: what other systems hold as well");
  app.add_flag("--summary", chosen.summary, "With a layout: totals without the lists");
  app.add_option("--json", chosen.json, "Also write the answer to this file, with exact numbers");
}

zero::accumulation mode_of(const settings& chosen) {
  using zero::accumulation;
  if (chosen.accumulation == "none" && chosen.micro_batches > 1) {
    throw example::usage_failure(
        "several micro-batches need --accumulation reduce_last or "
        "reduce_every");
  }
  if (chosen.accumulation == "reduce_last") return accumulation::reduce_last;
  if (chosen.accumulation == "reduce_every") return accumulation::reduce_every;
  return accumulation::none;
}

void print(const settings& chosen, const std::string& text,
           const std::function<std::string()>& json) {
  if (!chosen.json.empty()) example::write_file(chosen.json, json());
  std::cout << text;
}

planning::formula_request formula_request_of(const settings& chosen) {
  return {chosen.params.empty() ? 0 : planning::parse_count(chosen.params),
          static_cast<std::uint64_t>(chosen.ranks),
          planning::find_policy(chosen.precision, chosen.optimizer), mode_of(chosen),
          chosen.micro_batches};
}

exit_code answer_formulas(const settings& chosen) {
  const planning::formula_request request = formula_request_of(chosen);
  const std::vector<planning::named_stage> stages =
      chosen.stage.empty() ? planning::stages_with(request.mode)
                           : std::vector{planning::find_stage(chosen.stage)};
  print(chosen, planning::formulas_text(request, stages, chosen.others),
        [&] { return planning::formulas_json(request, stages, chosen.others); });
  return exit_code::success;
}

exit_code answer_budget(const settings& chosen) {
  const planning::formula_request request = formula_request_of(chosen);
  const std::uint64_t budget = planning::parse_bytes(chosen.budget);
  print(chosen, planning::budget_text(request, budget),
        [&] { return planning::budget_json(request, budget); });
  const bool fits = request.psi == 0 || planning::smallest_stage(request, budget);
  return fits ? exit_code::success : exit_code::check_failed;
}

planning::plan_question question_of(const settings& chosen) {
  return {chosen.stage.empty() ? planning::stages.front() : planning::find_stage(chosen.stage),
          planning::find_policy(chosen.precision, chosen.optimizer),
          chosen.ranks,
          chosen.rank,
          mode_of(chosen),
          chosen.micro_batches,
          chosen.replicas};
}

exit_code answer_layout(const settings& chosen, const zero::model_layout& layout) {
  const planning::plan_question question = question_of(chosen);
  if (!chosen.budget.empty()) {
    const planning::layout_budget budget =
        planning::fit(layout, question, planning::parse_bytes(chosen.budget));
    print(chosen, planning::budget_text(budget), [&] { return planning::budget_json(budget); });
    return budget.smallest_stage.empty() ? exit_code::check_failed : exit_code::success;
  }
  if (chosen.stage.empty()) {
    throw example::usage_failure("a layout's plan needs --stage (or --budget to compare stages)");
  }
  const planning::plan_answer answer = planning::answer(layout, question);
  print(chosen, planning::plan_text(layout, answer, !chosen.summary),
        [&] { return planning::plan_json(layout, answer); });
  if (answer.is_consistent()) return exit_code::success;
  std::cerr << "zero-plan: the plan and the formulas disagree\n";
  return exit_code::check_failed;
}

exit_code answer_gpt(const settings& chosen) {
  const zero::model_layout layout = planning::make_gpt_layout(
      planning::parse_gpt(chosen.gpt), {.alignment_bytes = chosen.alignment_bytes});
  if (chosen.ranks != 0) return answer_layout(chosen, layout);
  if (!chosen.budget.empty()) throw example::usage_failure("--budget needs --ranks");
  const std::string text = planning::layout_text(layout);
  if (chosen.json.empty()) {
    std::cout << text;
  } else {
    example::write_file(chosen.json, text);
  }
  return exit_code::success;
}

exit_code run(const settings& chosen) {
  const int questions = (chosen.table1 ? 1 : 0) + (chosen.table2 ? 1 : 0) +
                        (chosen.params.empty() ? 0 : 1) + (chosen.layout.empty() ? 0 : 1) +
                        (chosen.gpt.empty() ? 0 : 1);
  if (questions > 1 || (questions == 0 && chosen.budget.empty())) {
    throw example::usage_failure(
        "one of --table1, --table2, --params, --layout, --gpt or --budget is wanted; see --help");
  }
  if (chosen.table1) {
    print(chosen, planning::table1_text(), planning::table1_json);
    return exit_code::success;
  }
  if (chosen.table2) {
    print(chosen, planning::table2_text(), planning::table2_json);
    return exit_code::success;
  }
  if (!chosen.gpt.empty()) return answer_gpt(chosen);
  if (chosen.ranks == 0) throw example::usage_failure("--ranks is missing");
  if (!chosen.layout.empty()) {
    return answer_layout(
        chosen, planning::read_layout(chosen.layout, {.alignment_bytes = chosen.alignment_bytes}));
  }
  return chosen.budget.empty() ? answer_formulas(chosen) : answer_budget(chosen);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Plans ZeRO training: bytes held per rank, elements moved per step, what fits",
               "zero-plan"};
  settings chosen;
  describe(app, chosen);
  return example::run_program(app, argc, argv, [&] { return run(chosen); });
}
