// SPDX-License-Identifier: Apache-2.0
// labels: fault
#include <zero/estimate.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <random>

#include <zero/precision.hpp>
#include <zero/stage.hpp>

using namespace zero;

namespace {

template <class S, class P = bf16_mixed, class O = adamw>
constexpr state_formula formula = formula_of<S, P, O>();

constexpr bool is(state_formula formula, std::uint64_t replicated, std::uint64_t partitioned) {
  return formula.replicated == replicated && formula.partitioned == partitioned;
}

constexpr bool is(volume_formula volume, std::uint64_t reduces, std::uint64_t gathers,
                  std::uint64_t frozen_gathers) {
  return volume.reduce_scatter_trainable == reduces && volume.all_gather_trainable == gathers &&
         volume.all_gather_frozen == frozen_gathers;
}

constexpr std::uint64_t psi = 7'500'000'000;

}  // namespace

// ZeRO, section 5: 16 Psi; 4 Psi + 12 Psi/N; 2 Psi + 14 Psi/N; 16 Psi/N.
static_assert(is(formula<stage0>, 16, 0));
static_assert(is(formula<stage1>, 4, 12));
static_assert(is(formula<stage2>, 2, 14));
static_assert(is(formula<stage3>, 0, 16));
static_assert(is(formula<stage3_keep_gathered>, 0, 16));

// The coefficients are those of the policy, not the paper's.
static_assert(is(formula<stage0, fp32>, 16, 0));
static_assert(is(formula<stage1, fp32>, 8, 8));
static_assert(is(formula<stage2, fp32>, 4, 12));
static_assert(is(formula<stage3, fp32>, 0, 16));
static_assert(is(formula<stage1, fp16_mixed>, 4, 12));
static_assert(is(formula<stage1, bf16_mixed_fp32_gradients>, 6, 12));
static_assert(is(formula<stage2, bf16_mixed_fp32_gradients>, 2, 16));
static_assert(is(formula<stage3, bf16_mixed_fp32_gradients>, 0, 18));
static_assert(is(formula<stage1, bf16_remainder>, 4, 10));
static_assert(is(formula<stage3, bf16_remainder>, 0, 14));
static_assert(is(formula<stage1, bf16_mixed, sgd>, 4, 8));
static_assert(is(formula<stage1, bf16_mixed, lion>, 4, 8));
static_assert(is(formula<stage1, bf16_mixed, adam>, 4, 12));
static_assert(is(formula<stage3, fp32, sgd>, 0, 12));

// 7.5B parameters on 64 ranks: 120, 31.4, 16.6 and 1.88 GB.
static_assert(formula<stage0>.rank_bytes(psi, 64) == 120e9);
static_assert(formula<stage1>.rank_bytes(psi, 64) == 31.40625e9);
static_assert(formula<stage2>.rank_bytes(psi, 64) == 16.640625e9);
static_assert(formula<stage3>.rank_bytes(psi, 64) == 1.875e9);
static_assert(formula<stage3>.all_ranks_bytes(psi, 64) == 120'000'000'000);

// 10^12 parameters on 10,000 ranks stay inside 64 bits.
static_assert(formula<stage0>.all_ranks_bytes(1'000'000'000'000, 10'000) ==
              160'000'000'000'000'000);
static_assert(formula<stage3>.rank_bytes(1'000'000'000'000, 10'000) == 1.6e9);
// And further out, where the bytes of all ranks together do not.
static_assert(formula<stage0>.rank_bytes(1'000'000'000'000'000, 100'000) == 1.6e16);

// ZeRO, section 7. A reduce-scatter and an all-gather at stages 0 to 2; two all-gathers at 3.
static_assert(is(volume_of(flags_of<stage0>()), 1, 1, 0));
static_assert(is(volume_of(flags_of<stage1>()), 1, 1, 0));
static_assert(is(volume_of(flags_of<stage2>()), 1, 1, 0));
static_assert(is(volume_of(flags_of<stage3>()), 1, 2, 2));
static_assert(is(volume_of(flags_of<stage3_keep_gathered>()), 1, 1, 1));
static_assert(volume_of(flags_of<stage3>()).elements(10, 100) == 230);
static_assert(volume_of(flags_of<stage1>()).elements(10, 100) == 20);

// k micro-batches: Psi + Psi, Psi + 2 k Psi, Psi + k Psi; k Psi for the gradients if each is
// reduced.
static_assert(is(volume_of(flags_of<stage2>(), 5, accumulation::reduce_last), 1, 1, 0));
static_assert(is(volume_of(flags_of<stage3>(), 5, accumulation::reduce_last), 1, 10, 10));
static_assert(is(volume_of(flags_of<stage3_keep_gathered>(), 5, accumulation::reduce_last), 1, 5,
                 5));
static_assert(is(volume_of(flags_of<stage1>(), 5, accumulation::reduce_every), 5, 1, 0));
static_assert(is(volume_of(flags_of<stage3>(), 5, accumulation::reduce_every), 5, 10, 10));

TEST_CASE("the formulas hold for random models and numbers of ranks") {
  constexpr std::uint64_t seed = 20'200'213;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr state_formula formulas[] = {formula<stage0>,       formula<stage1>,
                                        formula<stage2>,       formula<stage3>,
                                        formula<stage1, fp32>, formula<stage3, bf16_remainder>};
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t p = 1 + random() % 1'000'000'000'000;
    const std::uint64_t n = 1 + random() % 10'000;
    CAPTURE(i, p, n);
    for (const state_formula& f : formulas) {
      const long double exact =
          static_cast<long double>(f.replicated) * static_cast<long double>(p) +
          static_cast<long double>(f.partitioned) * static_cast<long double>(p) /
              static_cast<long double>(n);
      REQUIRE(std::abs(static_cast<long double>(f.rank_bytes(p, n)) - exact) <= exact * 2e-16L);
      REQUIRE(f.all_ranks_bytes(p, n) == n * f.replicated * p + f.partitioned * p);
      REQUIRE(f.rank_bytes(p, 1) == formula<stage0>.rank_bytes(p, 1) *
                                        static_cast<double>(f.replicated + f.partitioned) / 16.0);
    }
    // More ranks never need more, and a higher stage never does either.
    REQUIRE(formula<stage1>.rank_bytes(p, n) <= formula<stage0>.rank_bytes(p, n));
    REQUIRE(formula<stage2>.rank_bytes(p, n) <= formula<stage1>.rank_bytes(p, n));
    REQUIRE(formula<stage3>.rank_bytes(p, n) <= formula<stage2>.rank_bytes(p, n));
    REQUIRE(formula<stage1>.rank_bytes(p, n + 1) <= formula<stage1>.rank_bytes(p, n));
  }
}

TEST_CASE("the largest model fits, and one parameter more does not") {
  constexpr std::uint64_t seed = 20'200'214;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t budget = 1 + random() % 1'000'000'000'000;
    const std::uint64_t n = 1 + random() % 10'000;
    CAPTURE(i, budget, n);
    for (const state_formula& f :
         {formula<stage0>, formula<stage1>, formula<stage2>, formula<stage3>}) {
      const std::uint64_t largest = f.largest_model(budget, n);
      REQUIRE(f.all_ranks_bytes(largest, n) <= budget * n);
      REQUIRE(f.all_ranks_bytes(largest + 1, n) > budget * n);
    }
  }
}

TEST_CASE("fault_53 what a rank of real sizes holds, state by state") {
  // 10 elements on 4 ranks at an alignment of one element: shards of 3, 3, 3 and 1.
  model_layout layout({.alignment_bytes = 2});
  layout.add_tensor(layout.add_unit("unit"), "a", {10});
  const element_bytes bytes = bytes_of<bf16_mixed, adamw>();
  const auto held = [&](stage_flags stage, int rank) {
    return rank_estimate(layout, {stage, bytes, 4, rank, accumulation::none}).held();
  };
  REQUIRE(held(flags_of<stage0>(), 0).parameters == 20);
  REQUIRE(held(flags_of<stage0>(), 0).optimizer == 120);
  REQUIRE(held(flags_of<stage1>(), 0).gradients == 20);
  REQUIRE(held(flags_of<stage1>(), 0).optimizer == 36);
  REQUIRE(held(flags_of<stage1>(), 3).optimizer == 12);
  REQUIRE(held(flags_of<stage2>(), 3).gradients == 2);
  REQUIRE(held(flags_of<stage3>(), 2).parameters == 6);
  REQUIRE(held(flags_of<stage3>(), 3).parameters == 2);
  // Each buffer is rounded up to the arena's 64 bytes: five buffers at stage 3.
  REQUIRE(held(flags_of<stage3>(), 3).padding == 5 * 64 - 16);
  // Extra buffers stand on a line of their own: the control block, gathered and unreduced units.
  REQUIRE(held(flags_of<stage0>(), 0).transient == 64);
  REQUIRE(held(flags_of<stage2>(), 0).transient == 64 + 64);
  REQUIRE(held(flags_of<stage3>(), 0).transient == 64 + 64 + 64);
}
