// SPDX-License-Identifier: Apache-2.0
// links: plan_core gpt_model
#include "gpt_layout.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <zero/optimizer.hpp>
#include <zero/plan.hpp>

#include "units.hpp"

namespace {

/// The GPT programs' model, its embedding used a second time by the head.
zero::model_layout layout_of(const gpt::configuration& model) {
  zero::model_layout layout;
  for (const gpt::unit_description& description : gpt::describe_units(model)) {
    const zero::unit_id unit = layout.add_unit(description.name);
    for (const gpt::tensor_description& tensor : description.tensors) {
      layout.add_tensor(unit, description.name + "." + tensor.name, tensor.shape,
                        tensor.decays ? zero::decay : zero::no_decay);
    }
  }
  layout.use(zero::unit_id{0});
  return layout;
}

}  // namespace

TEST_CASE("--gpt plans the model that the GPT programs train") {
  const gpt::configuration model{
      .layers = 3, .width = 24, .heads = 4, .context = 10, .vocabulary = 256};
  const zero::model_layout trained = layout_of(model);
  const zero::model_layout planned = planning::make_gpt_layout({3, 24, 256, 10});
  REQUIRE(planned.trainable_elements() == gpt::parameter_count(model));
  // One unit and one tensor more: the tied head.
  REQUIRE(planned.unit_count() == trained.unit_count() + 1);
  REQUIRE(planned.tensor_count() == trained.tensor_count() + 1);
  for (std::uint32_t u = 0; u < trained.unit_count(); ++u) {
    REQUIRE(planned.unit_name({u}) == trained.unit_name({u}));
  }
  for (std::uint32_t t = 0; t < trained.tensor_count(); ++t) {
    const zero::tensor_info one = planned.info({t});
    const zero::tensor_info two = trained.info({t});
    REQUIRE(one.name == two.name);
    REQUIRE(std::vector(one.shape.begin(), one.shape.end()) ==
            std::vector(two.shape.begin(), two.shape.end()));
    REQUIRE(one.group == two.group);
    REQUIRE(planned.offset({t}) == trained.offset({t}));
  }
  const auto bytes = zero::bytes_of<zero::bf16_mixed, zero::adamw>();
  for (const zero::stage_flags stage :
       {zero::flags_of<zero::stage0>(), zero::flags_of<zero::stage1>(),
        zero::flags_of<zero::stage2>(), zero::flags_of<zero::stage3>(),
        zero::flags_of<zero::stage3_keep_gathered>()}) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const zero::plan_request request{stage, bytes, ranks, 0, zero::accumulation::none};
      const zero::plan one = zero::make_plan(planned, request);
      const zero::plan two = zero::make_plan(trained, request);
      REQUIRE(one.held == two.held);
      REQUIRE(zero::step_collectives(planned, one) == zero::step_collectives(trained, two));
    }
  }
}
