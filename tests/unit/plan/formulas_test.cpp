// SPDX-License-Identifier: Apache-2.0
// links: plan_core
#include "formulas.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <random>
#include <string>

#include "layout_plan.hpp"
#include "program.hpp"

using namespace planning;
using Catch::Matchers::Contains;

namespace {

formula_request request_for(std::uint64_t psi, std::uint64_t ranks,
                            const char* precision = "bf16_mixed", const char* optimizer = "adamw") {
  return {psi, ranks, find_policy(precision, optimizer), zero::accumulation::none, 1};
}

std::string held_text(const char* stage, const formula_request& request) {
  return text_of(formulas_of(find_stage(stage).flags, request).total());
}

}  // namespace

TEST_CASE("formulas are written from the policy's sizes") {
  const formula_request paper = request_for(1, 64);
  REQUIRE(held_text("0", paper) == "16 Psi");
  REQUIRE(held_text("1", paper) == "4 Psi + 12 Psi/N");
  REQUIRE(held_text("2", paper) == "2 Psi + 14 Psi/N");
  REQUIRE(held_text("3", paper) == "16 Psi/N");
  REQUIRE(held_text("3_keep_gathered", paper) == "2 Psi + 16 Psi/N");
  REQUIRE(held_text("1", request_for(1, 64, "fp32")) == "8 Psi + 8 Psi/N");
  REQUIRE(held_text("1", request_for(1, 64, "bf16_mixed_fp32_gradients")) == "6 Psi + 12 Psi/N");
  REQUIRE(held_text("3", request_for(1, 64, "bf16_remainder")) == "14 Psi/N");
  REQUIRE(held_text("1", request_for(1, 64, "bf16_mixed", "lion")) == "4 Psi + 8 Psi/N");
  // Nothing is gathered with one rank, so nothing is kept.
  REQUIRE(held_text("3_keep_gathered", request_for(1, 1)) == "16 Psi/N");
}

TEST_CASE("accumulation adds its own bytes") {
  formula_request request = request_for(1, 64);
  request.mode = zero::accumulation::reduce_last;
  request.micro_batches = 3;
  REQUIRE(held_text("1", request) == "8 Psi + 12 Psi/N");
  REQUIRE(text_of(formulas_of(find_stage("3").flags, request).moved) == "7 Psi");
  request.mode = zero::accumulation::reduce_every;
  REQUIRE(held_text("1", request) == "4 Psi + 16 Psi/N");
  // The shard of the sum takes the place of the gradients' shard.
  REQUIRE(held_text("2", request) == "2 Psi + 16 Psi/N");
  REQUIRE(text_of(formulas_of(find_stage("3").flags, request).moved) == "9 Psi");
  REQUIRE_THROWS_AS(formulas_of(find_stage("0").flags, request), zero::usage_error);
  REQUIRE(stages_with(request.mode).size() == 4);
}

TEST_CASE("other systems hold what their documentation says") {
  std::string all;
  for (const other_system& system : other_systems())
    all += text_of(system.held) + "; ";
  REQUIRE(all == "6 Psi + 12 Psi/N; 4 Psi + 16 Psi/N; 2 Psi + 18 Psi/N; 18 Psi/N; ");
}

TEST_CASE("shares are exact quotients") {
  REQUIRE(share_of({0, 16}, 10, 3).text() == "53.3");
  REQUIRE(share_of({4, 12}, 10, 3).text() == "80");
  REQUIRE(share_of({0, 1}, 2, 3).text() == "0.7");
  REQUIRE(share_of({0, 1}, 99, 100).text() == "1");
  REQUIRE(share_of({0, 1}, 99, 100).rounded_up() == 1);
  REQUIRE(share_of({2, 14}, 7'500'000'000, 64).text() == "16640625000");
}

TEST_CASE("zero-plan's formulas are the library's for 1,000 random models and numbers of ranks") {
  constexpr std::uint64_t seed = 75;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const auto& group = policies[random() % policies.size()];
    const formula_request request{1 + random() % 1'000'000'000'000, 1 + random() % 10'000,
                                  group[random() % group.size()], zero::accumulation::none, 1};
    const std::uint64_t n = request.ranks;
    CAPTURE(i, request.psi, n, std::string(request.policy.precision));
    for (const named_stage& stage : stages) {
      const stage_formulas formulas = formulas_of(stage.flags, request);
      // The arithmetic again, state by state, from the flags.
      const zero::element_bytes& bytes = request.policy.bytes;
      const auto state = [&](bool partitioned, std::uint64_t per_element) {
        return (partitioned ? 1 : n) * per_element * request.psi;
      };
      const bool kept = stage.name == "3_keep_gathered" && n > 1;
      const std::uint64_t all_ranks = state(stage.flags.partitions_parameters, bytes.parameter) +
                                      state(stage.flags.partitions_gradients, bytes.gradient) +
                                      state(stage.flags.partitions_optimizer_state,
                                            bytes.master + bytes.moments * bytes.moment) +
                                      (kept ? state(false, bytes.parameter) : 0);
      const share held = share_of(formulas.total(), request.psi, n);
      REQUIRE(held.whole == all_ranks / n);
      REQUIRE(held.rest == all_ranks % n);
      const std::uint64_t factor = stage.name == "3" ? 3 : 2;
      REQUIRE(moved_elements(formulas, request) == (n == 1 ? 0 : factor * request.psi));
    }
  }
}

TEST_CASE("a budget picks the smallest stage that fits") {
  constexpr std::uint64_t gb = 1'000'000'000;
  const formula_request request = request_for(7'500'000'000, 64);
  REQUIRE(smallest_stage(request, 120 * gb) == "0");
  REQUIRE(smallest_stage(request, 120 * gb - 1) == "1");
  REQUIRE(smallest_stage(request, 31'406'250'000) == "1");
  REQUIRE(smallest_stage(request, 31'406'249'999) == "2");
  REQUIRE(smallest_stage(request, 2 * gb) == "3");
  REQUIRE_FALSE(smallest_stage(request, 1'874'999'999));
}

TEST_CASE("names that do not exist are answered with those that do") {
  REQUIRE_THROWS_WITH(find_stage("4"), Contains("\"4\"") && Contains("3_keep_gathered"));
  REQUIRE_THROWS_WITH(find_policy("fp8", "adamw"), Contains("fp8") && Contains("bf16_remainder"));
  REQUIRE_THROWS_AS(find_policy("fp32", "muon"), example::usage_failure);
}
