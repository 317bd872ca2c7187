// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include "support/training.hpp"

#include <algorithm>
#include <cmath>

#include <zero/detail/hash.hpp>
#include <zero/estimate.hpp>

namespace zero::test {

namespace {

std::uint64_t hash_of(const gradient_site& site) {
  return detail::hasher{}
      .add(static_cast<std::uint64_t>(site.rank))
      .add(site.step)
      .add(site.micro_batch)
      .add(site.tensor_key)
      .add(site.index)
      .value();
}

float unit_interval(std::uint64_t hash) {
  return static_cast<float>(static_cast<double>(hash >> 40) / 16777216.0) * 2.0F - 1.0F;
}

std::vector<float> gradient_of(const model_layout& layout, tensor_id tensor,
                               const gradient_function& function, gradient_site site, float scale) {
  const tensor_info info = layout.info(tensor);
  site.tensor_key = info.key;
  std::vector<float> values(info.elements);
  for (site.index = 0; site.index < info.elements; ++site.index) {
    values[site.index] = function(site) * scale;
  }
  return values;
}

std::vector<tensor_id> trainable_tensors(const model_layout& layout, unit_id unit) {
  std::vector<tensor_id> tensors;
  for (const tensor_id tensor : layout.tensors(unit)) {
    if (layout.info(tensor).trainable) tensors.push_back(tensor);
  }
  return tensors;
}

void run_backward_scope(any_pass& pass, const model_layout& layout, unit_id unit,
                        const gradient_function& gradient, const gradient_site& site) {
  const auto scope = pass.backward(unit);
  for (const tensor_id tensor : trainable_tensors(layout, unit)) {
    scope->add(tensor, gradient_of(layout, tensor, gradient, site, pass.loss_scale()));
  }
  scope->finish();
}

}  // namespace

float integer_gradient(const gradient_site& site) {
  return static_cast<float>(static_cast<int>(hash_of(site) % 9) - 4);
}

float real_gradient(const gradient_site& site) {
  return unit_interval(hash_of(site));
}

void initial_values(const tensor_info& tensor, std::uint64_t first, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = unit_interval(detail::hasher{}.add(tensor.key).add(first + i).value());
  }
}

void run_micro_batch(any_engine& engine, int rank, const training_options& options,
                     micro_batch_position position, std::uint64_t step) {
  const model_layout& layout = engine.layout();
  const auto uses = layout.uses();
  const gradient_site site{rank, step, position.micro_batch, 0, 0};
  const auto pass = engine.train(position);
  for (const unit_id unit : uses) {
    if (options.uses_scopes) {
      pass->forward(unit)->finish();
    } else {
      pass->open(unit, direction::forward);
      pass->close(unit);
    }
  }
  for (auto unit = uses.rbegin(); unit != uses.rend(); ++unit) {
    if (options.uses_scopes) {
      run_backward_scope(*pass, layout, *unit, options.gradient, site);
    } else {
      pass->open(*unit, direction::backward);
      run_backward_scope(*pass, layout, *unit, options.gradient, site);
      pass->close(*unit);
    }
  }
  pass->end();
}

void run_micro_batch(any_engine& engine, const local_gradient& value,
                     micro_batch_position position) {
  training_options options;
  const model_layout& layout = engine.layout();
  // Sites carry keys; the tensor is found again by its key.
  options.gradient = [&](const gradient_site& site) {
    for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
      const tensor_info info = layout.info(tensor_id{t});
      if (info.key == site.tensor_key) return value(info, site.index);
    }
    throw error("no tensor has this key");
  };
  run_micro_batch(engine, 0, options, position, 0);
}

step_report run_step(any_engine& engine, const local_gradient& value,
                     const step_arguments& arguments) {
  run_micro_batch(engine, value);
  return engine.step(arguments);
}

std::vector<step_report> run_steps(any_engine& engine, int rank, const training_options& options) {
  std::vector<step_report> reports;
  for (std::uint64_t step = 0; step < options.steps; ++step) {
    for (std::uint64_t m = 0; m < options.micro_batches; ++m) {
      run_micro_batch(engine, rank, options, {m, options.micro_batches}, step);
    }
    reports.push_back(engine.step(options.arguments));
  }
  return reports;
}

trained_state state_of(any_engine& engine, const std::vector<step_report>& reports) {
  trained_state state;
  for (std::uint32_t t = 0; t < engine.layout().tensor_count(); ++t) {
    const auto bits = engine.export_parameter_bits(tensor_id{t});
    const auto values = engine.export_tensor(tensor_id{t});
    state.parameter_bits.insert(state.parameter_bits.end(), bits.begin(), bits.end());
    state.values.insert(state.values.end(), values.begin(), values.end());
  }
  for (const step_report& report : reports) state.norms.push_back(report.grad_norm);
  return state;
}

std::string accounting_difference(any_engine& engine, const engine_choice& choice,
                                  const counted_communicator& communicator,
                                  const engine_options& settings, std::uint64_t micro_batches) {
  const plan_request request{flags_of(choice.stage), bytes_of(choice.precision, choice.optimizer),
                             communicator.size(), communicator.rank(), settings.accumulation};
  const rank_estimate estimate(engine.layout(), request);
  const auto differ = [](const char* what, std::uint64_t a, std::uint64_t b) {
    return std::string(what) + ": " + std::to_string(a) + " and " + std::to_string(b) + "\n";
  };
  std::string text;
  const held_bytes held = engine.ledger().held;
  if (held != estimate.held()) {
    text += differ("held and estimate", held.total(), estimate.held().total());
  }
  const moved_elements moved = engine.ledger().step;
  const moved_elements predicted = estimate.moved(micro_batches);
  if (moved != predicted) {
    text += differ("moved and estimate", moved.total(), predicted.total());
    text += differ("wire bytes", moved.wire_bytes, predicted.wire_bytes);
  }
  const traffic_counters seen = communicator.counters();
  const auto check = [&](collective kind, std::uint64_t elements) {
    const std::uint64_t counted = communicator.size() == 1 ? 0 : seen[kind].elements;
    if (counted != elements) text += differ("meter and ledger", counted, elements);
  };
  check(collective::reduce_scatter, moved.reduce_scatter);
  check(collective::all_gather, moved.all_gather);
  check(collective::all_reduce, moved.all_reduce);
  if (seen.wire_bytes() != moved.wire_bytes) {
    text += differ("metered and booked wire bytes", seen.wire_bytes(), moved.wire_bytes);
  }
  return text;
}

trained_state train(const engine_choice& choice, int ranks, const model_layout& layout,
                    const training_options& options, const engine_options& settings,
                    delaying_options delays) {
  const auto states = run_threads(ranks, long_timeout, [&](threads_communicator& threads) {
    rank_communicator communicator(threads, delays);
    const auto engine = make_engine(choice, communicator.counter, layout, settings);
    engine->initialize(initial_values);
    training_options all_but_last = options;
    --all_but_last.steps;
    auto reports = run_steps(*engine, threads.rank(), all_but_last);
    // The meter sees the last step alone.
    communicator.counter.reset();
    for (std::uint64_t m = 0; m < options.micro_batches; ++m) {
      run_micro_batch(*engine, threads.rank(), options, {m, options.micro_batches},
                      all_but_last.steps);
    }
    reports.push_back(engine->step(options.arguments));
    const std::string difference = accounting_difference(*engine, choice, communicator.counter,
                                                         settings, options.micro_batches);
    if (!difference.empty()) throw error(name_of(choice) + ": " + difference);
    return state_of(*engine, reports);
  });
  for (const double norm : states.front().norms) {
    if (!std::isfinite(norm)) throw error(name_of(choice) + ": a step was skipped");
  }
  for (const trained_state& state : states) {
    if (state != states.front()) throw error(name_of(choice) + ": the ranks' states differ");
  }
  return states.front();
}

model_layout sample_layout(std::uint64_t alignment_bytes) {
  model_layout layout({.alignment_bytes = alignment_bytes});
  const group_id slow = layout.add_group({.lr_multiplier = 0.5, .weight_decay = 0.3});
  const unit_id embedding = layout.add_unit("embedding");
  const tensor_id table = layout.add_tensor(embedding, "table", {37, 5}, no_decay);
  layout.add_tensor(embedding, "positions", {13, 5}, slow);
  for (std::uint64_t b = 0; b < 3; ++b) {
    const std::string name = "block" + std::to_string(b);
    const unit_id block = layout.add_unit(name);
    layout.add_tensor(block, name + ".weight", {7 + b, 11 + 2 * b});
    layout.add_tensor(block, name + ".fixed", {3 + b}, decay, frozen);
    layout.add_tensor(block, name + ".nothing", {4, 0, 2});
    layout.add_tensor(block, name + ".bias", {1 + b}, no_decay);
  }
  const unit_id adapter = layout.add_unit("adapter");
  layout.add_tensor(adapter, "adapter.all_fixed", {29}, decay, frozen);
  const unit_id head = layout.add_unit("head");
  layout.add_tensor(head, "head.table", {37, 5}, no_decay, {.tied_to = table});
  layout.add_tensor(head, "head.bias", {37}, no_decay);
  return layout;
}

namespace {

/// Draws numbers from a seed; the order of draws decides the model.
class dice {
 public:
  explicit dice(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t below(std::uint64_t limit) {
    return detail::hasher{}.add(seed_).add(++draws_).value() % limit;
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
};

std::uint64_t random_extent(dice& dice) {
  constexpr std::uint64_t sizes[] = {0, 1, 2, 3, 7, 16, 31, 64, 101, 257};
  return sizes[dice.below(std::size(sizes))];
}

}  // namespace

model_layout random_layout(std::uint64_t seed) {
  dice dice(seed);
  model_layout layout({.alignment_bytes = std::uint64_t{2} << dice.below(7)});
  const group_id own = layout.add_group({.lr_multiplier = 2.0, .weight_decay = 0.25});
  const group_id groups[] = {decay, no_decay, own};
  std::vector<tensor_id> untied;
  const std::uint64_t units = 1 + dice.below(5);
  for (std::uint64_t u = 0; u < units; ++u) {
    const unit_id unit = layout.add_unit("unit" + std::to_string(u));
    const std::uint64_t tensors = dice.below(4);
    for (std::uint64_t t = 0; t < tensors; ++t) {
      const std::string name = "tensor" + std::to_string(u) + "." + std::to_string(t);
      const group_id group = groups[dice.below(3)];
      if (!untied.empty() && dice.one_in(4)) {
        const tensor_id target = untied[dice.below(untied.size())];
        const tensor_info info = layout.info(target);
        const std::vector<std::uint64_t> shape(info.shape.begin(), info.shape.end());
        layout.add_tensor(unit, name, shape, group,
                          {.trainable = info.trainable, .tied_to = target});
        continue;
      }
      const std::vector<std::uint64_t> shape = {random_extent(dice), 1 + dice.below(3)};
      untied.push_back(layout.add_tensor(unit, name, shape, group, {.trainable = !dice.one_in(4)}));
    }
    if (u > 0 && dice.one_in(4)) {
      layout.use(unit_id{static_cast<std::uint32_t>(dice.below(u))});
    }
  }
  return layout;
}

layout_traits traits_of(const model_layout& layout, int ranks) {
  layout_traits traits;
  for (std::uint32_t u = 0; u < layout.unit_count(); ++u) {
    if (layout.real_elements(unit_id{u}, true) % static_cast<std::uint64_t>(ranks) != 0) {
      traits.has_uneven = true;
    }
  }
  for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
    const tensor_info info = layout.info(tensor_id{t});
    traits.has_empty |= info.elements == 0;
    traits.has_frozen |= !info.trainable;
    traits.has_tied |= layout.is_tied(tensor_id{t});
  }
  return traits;
}

}  // namespace zero::test
