// SPDX-License-Identifier: Apache-2.0
#include "comparison.hpp"

#include <cstdint>
#include <cstdio>
#include <functional>

#include "computation.hpp"
#include "sampling.hpp"
#include "text_table.hpp"

namespace gpt {
namespace {

/// "1,234,567", in every locale.
std::string grouped(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t i = digits.size(); i > 3; i -= 3) {
    digits.insert(i - 3, ",");
  }
  return digits;
}

std::uint64_t rounded(double value) {
  return static_cast<std::uint64_t>(value + 0.5);
}

std::string decimals(double value, int places) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", places, value);
  return text;
}

bool has_equal_values(const run_record& a, const run_record& b) {
  return a.parameters_xxh64 == b.parameters_xxh64 && a.masters_xxh64 == b.masters_xxh64;
}

/// Table rows whose cells come from the runs.
class run_table {
 public:
  using cell = std::function<std::string(const run_record&)>;

  explicit run_table(std::span<const run_record> runs) : runs_(runs) {}

  void heading(const std::string& text) { table_.add({text}); }
  void row(const std::string& label, const cell& text_of) {
    std::vector<std::string> cells{label};
    for (const run_record& run : runs_) {
      cells.push_back(text_of(run));
    }
    table_.add(cells);
  }
  std::string text() const { return table_.text(); }

 private:
  std::span<const run_record> runs_;
  example::text_table table_;
};

void add_memory(run_table& table, bool accumulates) {
  using run = const run_record&;
  table.heading("bytes held by rank 0");
  table.row("  parameters", [](run r) { return grouped(r.held[0].parameters); });
  table.row("  gradients", [](run r) { return grouped(r.held[0].gradients); });
  table.row("  optimizer states", [](run r) { return grouped(r.held[0].optimizer); });
  table.row("  these three", [](run r) { return grouped(r.held[0].model_states()); });
  table.row("  the paper's formula", [](run r) { return paper_of(r).bytes_formula; });
  table.row("  in bytes", [](run r) { return grouped(rounded(paper_of(r).rank_bytes)); });
  table.row("  padding", [](run r) { return grouped(r.held[0].padding); });
  table.row("  transient buffers", [](run r) { return grouped(r.held[0].transient); });
  if (accumulates) {
    table.row("  accumulation", [](run r) { return grouped(r.held[0].accumulation); });
  }
  table.heading("model states of all ranks together");
  table.row("  bytes held", [](run r) { return grouped(model_state_bytes(r)); });
  table.row("  N x the formula", [](run r) { return grouped(paper_of(r).all_ranks_bytes); });
}

void add_traffic(run_table& table) {
  using run = const run_record&;
  table.heading("elements moved per step");
  table.row("  reduce-scatter", [](run r) { return grouped(r.moved.reduce_scatter); });
  table.row("  all-gather", [](run r) { return grouped(r.moved.all_gather); });
  table.row("  together", [](run r) { return grouped(r.moved.total()); });
  table.row("  the paper's formula", [](run r) { return paper_of(r).volume_formula; });
  table.row("  in elements", [](run r) { return grouped(paper_of(r).volume); });
}

void add_training(run_table& table, const run_record& first, bool has_others) {
  using run = const run_record&;
  table.heading("training");
  table.row("  tokens per second", [](run r) { return grouped(rounded(r.tokens_per_second)); });
  table.row("  first loss", [](run r) { return decimals(r.first_loss(), 4); });
  table.row("  last loss", [](run r) { return decimals(r.last_loss(), 4); });
  table.row("  held-out loss", [](run r) { return decimals(r.heldout_loss, 4); });
  if (has_others) {
    table.row("  values equal stage " + first.settings.stage + "'s",
              [&](run r) { return has_equal_values(r, first) ? "bitwise" : "NO"; });
  }
}

}  // namespace

std::string comparison_table(std::span<const run_record> runs) {
  const run_record& first = runs.front();
  run_table table(runs);
  table.row("stage", [](const run_record& r) { return r.settings.stage; });
  add_memory(table, first.settings.micro_batches > 1);
  add_traffic(table);
  add_training(table, first, runs.size() > 1);
  return first.settings.precision + ", " + first.settings.optimizer +
         ", N = " + std::to_string(first.settings.ranks) + " ranks, Psi = " + grouped(first.psi) +
         " parameters, " + std::to_string(first.settings.steps) + " steps of " +
         grouped(tokens_per_step(first.settings)) + " tokens\n" +
         "held-out text: " + decimals(first.unigram_heldout, 4) + " nats per byte by byte " +
         "frequencies, " + decimals(first.bigram_heldout, 4) + " by those of pairs\n\n" +
         table.text();
}

std::string sample_of(const run_record& run, const corpus& text) {
  const std::string prompt = prompt_of(text.heldout, run.settings.model.context);
  return "the model of stage " + run.settings.stage + " continues \"" + printable(prompt) +
         "\":\n" + printable(run.sample) + "\n";
}

std::vector<std::string> failures_of(std::span<const run_record> runs) {
  std::vector<std::string> failures;
  for (const run_record& run : runs) {
    const std::string name = "stage " + run.settings.stage + ", " + run.settings.precision + ": ";
    for (const std::string& failure : run.failures) {
      failures.push_back(name + failure);
    }
    if (!has_equal_values(run, runs.front())) {
      failures.push_back(name + "parameters or masters differ from those of stage " +
                         runs.front().settings.stage);
    }
  }
  return failures;
}

}  // namespace gpt
