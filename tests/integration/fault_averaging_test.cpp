// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <cmath>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// Rows of the fault list about means, divisors and accumulation over micro-batches.

namespace {

model_layout two_units(std::uint64_t elements = 5) {
  model_layout layout({.alignment_bytes = 2});
  layout.add_tensor(layout.add_unit("first"), "a", {elements});
  layout.add_tensor(layout.add_unit("second"), "b", {elements + 3});
  return layout;
}

/// What `with_reduced` holds on this rank after the passes: sums over ranks and micro-batches.
/// Constant gradients are assumed; a difference between elements throws.
float reduced_gradient(any_engine& engine) {
  std::vector<float> values;
  engine.for_each_owned(owned_state::gradients,
                        [&](const tensor_info&, std::uint64_t, std::span<const float> run) {
                          values.insert(values.end(), run.begin(), run.end());
                        });
  for (const float value : values) {
    if (value != values.front()) throw error("the reduced gradients differ between elements");
  }
  return values.empty() ? 0.0F : values.front();
}

struct summary {
  float gradient = 0;
  double norm = 0;
  double loss_scale = 1;
};

/// One step of micro-batches whose gradient is `value(rank, micro_batch)` everywhere.
template <class Value>
std::vector<summary> accumulate(const engine_choice& choice, int ranks, std::uint64_t micro_batches,
                                accumulation mode, Value value,
                                const step_arguments& arguments = {.lr = 0.01},
                                const model_layout& layout = two_units(),
                                loss_scale_options scale = {}) {
  return on_ranks(choice, ranks, layout, {.accumulation = mode, .loss_scale = scale},
                  [&](any_engine& engine, int rank, rank_communicator&) {
                    for (std::uint64_t m = 0; m < micro_batches; ++m) {
                      run_micro_batch(
                          engine, [&](const tensor_info&, std::uint64_t) { return value(rank, m); },
                          {m, micro_batches});
                    }
                    summary result;
                    result.loss_scale = engine.loss_scale();
                    result.norm = engine.step(arguments).grad_norm;
                    result.gradient = reduced_gradient(engine);
                    return result;
                  });
}

bool can_accumulate(stage_kind stage, accumulation mode) {
  return mode != accumulation::reduce_every || flags_of(stage).partitions_optimizer_state;
}

constexpr accumulation modes[] = {accumulation::reduce_last, accumulation::reduce_every};

}  // namespace

TEST_CASE("fault_17 no micro-batch is lost: 1, 10 and 100 make 111 in every stage") {
  for (const precision_kind precision : built_precisions()) {
    for (const accumulation mode : modes) {
      for (const stage_kind stage : all_stages) {
        if (!can_accumulate(stage, mode)) continue;
        CAPTURE(name_of(precision), name_of(stage), int(mode));
        const auto results = accumulate({stage, precision}, 2, 3, mode,
                                        [](int, std::uint64_t m) {
                                          return m == 0 ? 1.0F : m == 1 ? 10.0F : 100.0F;
                                        },
                                        {.lr = 0.01}, two_units(), {.initial = 1.0});
        // 13 elements of 2 x 111 over 2 ranks x 3 micro-batches.
        CHECK(results[0].norm == Approx(37.0 * std::sqrt(13.0)).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("fault_18 nothing is reduced twice: a constant gradient keeps its mean") {
  for (const accumulation mode : modes) {
    for (const stage_kind stage : all_stages) {
      if (!can_accumulate(stage, mode)) continue;
      CAPTURE(name_of(stage), int(mode));
      const auto results = accumulate({stage, precision_kind::bf16_mixed}, 2, 4, mode,
                                      [](int, std::uint64_t) { return 1.0F; }, {.divisor = 2.0});
      for (const summary& rank : results) {
        CHECK(rank.gradient == 8.0F);
        CHECK(rank.norm == Approx(4.0 * std::sqrt(13.0)).epsilon(1e-14));
      }
    }
  }
}

TEST_CASE("fault_19 every micro-batch joins the reduction although collectives are late") {
  const model_layout layout = sample_layout();
  training_options options;
  options.micro_batches = 3;
  options.gradient = integer_gradient;
  for (const accumulation mode : modes) {
    const engine_options settings = test_settings(mode);
    for (const stage_kind stage : all_stages) {
      if (!can_accumulate(stage, mode)) continue;
      CAPTURE(name_of(stage), int(mode));
      const engine_choice choice{stage, precision_kind::bf16_mixed};
      const delaying_options delays{std::chrono::microseconds(300), 19};
      CHECK(train(choice, 2, layout, options, settings, delays) ==
            train(choice, 2, layout, options, settings));
    }
  }
}

TEST_CASE("both accumulation modes and one big batch agree for integer gradients") {
  const model_layout layout = sample_layout();
  training_options options;
  options.arguments = {.lr = 0.01, .divisor = 1.0};
  training_options big = options;
  big.gradient = [](gradient_site site) {
    float sum = 0;
    for (site.micro_batch = 0; site.micro_batch < 3; ++site.micro_batch) {
      sum += integer_gradient(site);
    }
    return sum;
  };
  options.micro_batches = 3;
  for (const int ranks : {1, 3}) {
    const engine_choice choice{stage_kind::stage2, precision_kind::bf16_mixed};
    const auto expected = train(choice, ranks, layout, big);
    for (const accumulation mode : modes) {
      CAPTURE(ranks, int(mode));
      CHECK(train(choice, ranks, layout, options, test_settings(mode)) == expected);
    }
  }
}

TEST_CASE("fault_20 the divisor is the number of ranks: gradients r + 1 have mean (N + 1) / 2") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const stage_kind stage : all_stages) {
      const auto results =
          accumulate({stage, precision_kind::bf16_mixed}, ranks, 1, accumulation::none,
                     [](int rank, std::uint64_t) { return static_cast<float>(rank) + 1.0F; });
      CAPTURE(ranks, name_of(stage));
      CHECK(results[0].gradient == static_cast<float>(ranks * (ranks + 1) / 2));
      CHECK(results[0].norm == Approx((ranks + 1) / 2.0 * std::sqrt(13.0)).epsilon(1e-14));
    }
  }
}

TEST_CASE("fault_22 an fp16 sum may overflow where its mean does not, and tiny means survive") {
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    const engine_choice choice{stage, precision_kind::fp16_mixed};
    const auto run = [&](int ranks, float value) {
      return accumulate(choice, ranks, 1, accumulation::none,
                        [&](int, std::uint64_t) { return value; }, {.lr = 0.01}, two_units(),
                        {.initial = 1.0})[0]
          .gradient;
    };
    CHECK(run(4, 40000.0F) == 40000.0F);
    CHECK(run(4, 6e-8F) > 0.0F);
    CHECK(run(3, 3.0F) == 3.0F);
  }
}

TEST_CASE("fault_23 a divisor of the user's weighs losses by tokens: 1 x 4 and 3 x 8 give 7") {
  for (const stage_kind stage : all_stages) {
    CAPTURE(name_of(stage));
    // Each rank passes the sum over its tokens; the divisor is the tokens of the global batch.
    const auto results =
        accumulate({stage, precision_kind::bf16_mixed}, 2, 1, accumulation::none,
                   [](int rank, std::uint64_t) { return rank == 0 ? 1.0F * 4.0F : 3.0F * 8.0F; },
                   {.lr = 0.01, .divisor = 4.0});
    CHECK(results[0].norm == Approx(7.0 * std::sqrt(13.0)).epsilon(1e-14));
  }
}

TEST_CASE("fault_24 reduce_last moves gradients once per step, reduce_every once per micro-batch") {
  const model_layout layout = two_units();
  for (const accumulation mode : modes) {
    for (const stage_kind stage : all_stages) {
      if (!can_accumulate(stage, mode)) continue;
      const auto moved =
          on_ranks({stage, precision_kind::bf16_mixed}, 2, layout, {.accumulation = mode},
                   [](any_engine& engine, int rank, rank_communicator&) {
                     for (std::uint64_t m = 0; m < 4; ++m)
                       run_micro_batch(engine, rank, {}, {m, 4}, 0);
                     return engine.step({.lr = 0.01}).moved;
                   });
      CAPTURE(name_of(stage), int(mode));
      const std::uint64_t psi = 13;
      const stage_flags flags = flags_of(stage);
      CHECK(moved[0].reduce_scatter == psi * (mode == accumulation::reduce_every ? 4 : 1));
      const std::uint64_t gathers =
          flags.partitions_parameters ? (flags.reshards_after_forward ? 8 : 4) : 1;
      CHECK(moved[0].all_gather == psi * gathers);
    }
  }
}

TEST_CASE("fault_28 512 micro-batches of 1 make 512: sums are kept in fp32") {
  for (const accumulation mode : modes) {
    for (const stage_kind stage : {stage_kind::stage1, stage_kind::stage3}) {
      CAPTURE(name_of(stage), int(mode));
      const auto results = accumulate({stage, precision_kind::bf16_mixed}, 1, 512, mode,
                                      [](int, std::uint64_t) { return 1.0F; });
      CHECK(results[0].gradient == 512.0F);
    }
  }
}
