// SPDX-License-Identifier: Apache-2.0
// What training of 1.2 x 10^9 parameters on 1,000 ranks will hold and move, from
// arithmetic alone: no rank is started and no model is allocated.

#include <zero/estimate.hpp>
#include <zero/layout.hpp>
#include <zero/optimizer.hpp>
#include <zero/plan.hpp>
#include <zero/precision.hpp>

#include <cstdio>
#include <string>

namespace {

constexpr int ranks = 1000;
constexpr std::uint64_t width = 1600;

zero::model_layout transformer(std::uint64_t blocks) {
  zero::model_layout layout;
  const zero::unit_id embedding = layout.add_unit("embedding");
  layout.add_tensor(embedding, "tokens", {50257, width}, zero::no_decay);
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const std::string name = "block" + std::to_string(b);
    const zero::unit_id unit = layout.add_unit(name);
    layout.add_tensor(unit, name + ".attention", {4, width, width});
    layout.add_tensor(unit, name + ".mlp", {8, width, width});
    layout.add_tensor(unit, name + ".norms", {4, width}, zero::no_decay);
  }
  layout.use(embedding);  // the tied head uses the table again
  return layout;
}

void print_gigabytes(const char* what, std::uint64_t bytes) {
  std::printf("  %-32s %10.4f GB\n", what, static_cast<double>(bytes) / 1e9);
}

}  // namespace

int main() {
  const zero::model_layout layout = transformer(36);
  const std::uint64_t psi = layout.trainable_elements();
  const auto stage = zero::flags_of<zero::stage3>();
  const auto bytes = zero::bytes_of<zero::bf16_mixed, zero::adamw>();

  // One rank in detail.
  const zero::plan plan = zero::make_plan(layout, {stage, bytes, ranks, 0});
  std::printf("stage 3, bf16_mixed, adamw: Psi = %llu, rank 0 of %d\n",
              static_cast<unsigned long long>(psi), ranks);
  print_gigabytes("parameters", plan.held.parameters);
  print_gigabytes("gradients", plan.held.gradients);
  print_gigabytes("optimizer states", plan.held.optimizer);
  print_gigabytes("padding", plan.held.padding);
  print_gigabytes("transient (gathered, unreduced)", plan.held.transient);
  print_gigabytes("the arena, all together", plan.arena_bytes);

  // What a step moves, collective by collective.
  std::uint64_t moved = 0;
  const auto collectives = zero::step_collectives(layout, plan);
  for (const zero::planned_collective& c : collectives) moved += c.elements;
  std::printf("  a step: %zu collectives, %llu elements = 3 Psi\n", collectives.size(),
              static_cast<unsigned long long>(moved));

  // All ranks: shards differ by padding, their sum is the formula, exactly.
  bool passed = moved == 3 * psi && plan.held.total() == plan.arena_bytes;
  std::uint64_t all = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const zero::plan_request request{stage, bytes, ranks, rank};
    const zero::rank_estimate estimate(layout, request);
    all += estimate.held().model_states();
    if (rank % 250 == 0) {
      passed = passed && zero::make_plan(layout, request).held == estimate.held();
    }
  }
  const auto formula = zero::formula_of<zero::stage3, zero::bf16_mixed, zero::adamw>();
  passed = passed && all == formula.all_ranks_bytes(psi, ranks) && all == 16 * psi;
  std::printf("  model states of all ranks: %llu bytes = 16 Psi\n",
              static_cast<unsigned long long>(all));

  // The other way round: the largest model whose states fit into 80 GB per rank.
  std::printf("largest model for 80 GB of states per rank, %d ranks:\n", ranks);
  const auto print_largest = [&](const char* name, zero::stage_flags flags) {
    const auto largest = zero::formula_of(flags, bytes).largest_model(80'000'000'000, ranks);
    std::printf("  stage %s %12.1f x 10^9 parameters\n", name, static_cast<double>(largest) / 1e9);
  };
  print_largest("0", zero::flags_of<zero::stage0>());
  print_largest("1", zero::flags_of<zero::stage1>());
  print_largest("2", zero::flags_of<zero::stage2>());
  print_largest("3", stage);
  return passed ? 0 : 1;
}
