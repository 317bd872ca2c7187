// SPDX-License-Identifier: Apache-2.0
// Tensors are not all alike: groups with learning rates and decay of their own, frozen tensors, and
// a head that is tied to the embedding. Stage 3, and numbers small enough to check by hand.

#include <zero/zero.hpp>

#include <cstdio>
#include <vector>

namespace {

using engine_type = zero::engine<zero::stage3, zero::fp32, zero::threads_communicator, zero::sgd>;

struct model {
  zero::model_layout layout;
  zero::unit_id embedding, block, head;
  zero::tensor_id table, weight, adapter, fixed, head_table;

  model() {
    const zero::group_id slow = layout.add_group({.lr_multiplier = 0.25, .weight_decay = 0});
    embedding = layout.add_unit("embedding");
    table = layout.add_tensor(embedding, "table", {5, 3}, zero::no_decay);
    block = layout.add_unit("block");
    weight = layout.add_tensor(block, "weight", {3, 3});  // zero::decay: the optimizer's own
    adapter = layout.add_tensor(block, "adapter", {3}, slow);
    fixed = layout.add_tensor(block, "fixed", {3, 3}, zero::decay, zero::frozen);
    head = layout.add_unit("head");
    head_table = layout.add_tensor(head, "head.table", {5, 3}, zero::no_decay, {.tied_to = table});
  }
};

/// Adds `value` to every element of a tensor's gradient.
template <class Scope>
void add(const Scope& opened, zero::tensor_id tensor, float value) {
  for (float& element : opened.gradients(tensor)) element += value;
}

float first_value(engine_type& engine, zero::tensor_id tensor) {
  std::vector<float> values(engine.layout().info(tensor).elements);
  engine.export_tensor(tensor, values);
  return values.front();
}

bool train(zero::threads_communicator& ranks) {
  const model m;
  engine_type engine(ranks, m.layout, zero::sgd{.momentum = 0, .weight_decay = 0.5});
  engine.initialize([](const zero::tensor_info&, std::uint64_t, std::span<float> values) {
    for (float& value : values) value = 1;
  });
  bool refused = false;
  {
    auto pass = engine.train();
    for (const zero::unit_id unit : {m.embedding, m.block, m.head}) pass.forward(unit).finish();
    {
      // Opens the embedding too, because the head's table lies there.
      const auto opened = pass.backward(m.head);
      add(opened, m.head_table, 2);
    }
    {
      const auto opened = pass.backward(m.block);
      add(opened, m.weight, 4);
      add(opened, m.adapter, 4);
      try {
        add(opened, m.fixed, 4);
      } catch (const zero::usage_error& e) {
        refused = true;
        if (ranks.rank() == 0) std::printf("%s\n", e.what());
      }
    }
    {
      const auto opened = pass.backward(m.embedding);
      add(opened, m.table, 1);  // on top of the head's 2; reduced once, after this last use
    }
    pass.end();
  }
  const zero::step_report report = engine.step({.lr = 0.125}).get();

  const float table = first_value(engine, m.table);
  const float weight = first_value(engine, m.weight);
  const float adapter = first_value(engine, m.adapter);
  const float fixed = first_value(engine, m.fixed);
  if (ranks.rank() == 0) {
    std::printf("table %g, weight %g, adapter %g, fixed %g\n", static_cast<double>(table),
                static_cast<double>(weight), static_cast<double>(adapter),
                static_cast<double>(fixed));
  }
  bool passed = refused && fixed == 1;
  passed = passed && table == 1 - 0.125F * (2 + 1);      // no decay; both uses count
  passed = passed && weight == 1 - 0.125F * (4 + 0.5F);  // decay 0.5 of the optimizer
  passed = passed && adapter == 1 - 0.125F * 0.25F * 4;  // a quarter of the rate, no decay
  passed = passed && first_value(engine, m.head_table) == table;

  // Psi_t counts the tied table once, Psi_f is the frozen tensor, which stage 3 gathers as well.
  const std::uint64_t trainable = 15 + 9 + 3;
  passed = passed && m.layout.trainable_elements() == trainable &&
           m.layout.frozen_elements() == 9 && report.moved.total() == 3 * trainable + 2 * 9;
  return passed;
}

}  // namespace

int main() {
  for (const bool passed : zero::run_threads(3, train)) {
    if (!passed) return 1;
  }
  return 0;
}
