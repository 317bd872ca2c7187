// SPDX-License-Identifier: Apache-2.0
#include "support/process_training.hpp"

#include <array>
#include <bit>
#include <span>
#include <type_traits>
#include <utility>

#include <zero/detail/decorator.hpp>
#include <zero/detail/executor.hpp>
#include <zero/detail/fingerprint_exchange.hpp>
#include <zero/engine.hpp>
#include <zero/precision.hpp>
#include <zero/stage.hpp>

#include "support/training.hpp"

namespace zero::test {

namespace {

/// Tells the observer of every collective, before and after.
class watched : public detail::decorator<any_communicator> {
 public:
  using work = any_communicator::work;

  watched(any_communicator& inner, const run_observer& observer)
      : decorator(inner), observer_(observer) {}

  void enter(run_phase phase, std::uint64_t step = 0) {
    here_ = {};
    here_.phase = phase;
    here_.step = step;
    here_.sequence = sequence_;
    counts_ = {};
  }
  void pause(std::uint64_t step) {
    enter(run_phase::idle, step);
    observer_(here_);
  }

  template <class T, class U>
  work reduce_scatter(range<const T, partial> in, range<U, shard> out, reduce_options options,
                      queue on) {
    return observed(collective::reduce_scatter, true,
                    [&] { return inner().reduce_scatter(in, out, options, on); });
  }
  template <class T>
  work all_gather(range<const T, shard> in, range<T, full> out, queue on) {
    return observed(collective::all_gather, !std::is_same_v<T, std::uint64_t>,
                    [&] { return inner().all_gather(in, out, on); });
  }
  work all_reduce(range<double, full> values, queue on) {
    return observed(collective::all_reduce, true, [&] { return inner().all_reduce(values, on); });
  }
  template <class T>
  work broadcast(range<T, full> values, int root, queue on) {
    return observed(collective::broadcast, true,
                    [&] { return inner().broadcast(values, root, on); });
  }

 private:
  template <class Call>
  work observed(collective operation, bool moves_payload, Call call) {
    here_.operation = operation;
    here_.index = counts_[static_cast<std::size_t>(operation)]++;
    here_.moves_payload = moves_payload;
    here_.sequence = sequence_++;
    here_.is_after = false;
    observer_(here_);
    work started = call();
    started.wait({});
    here_.is_after = true;
    observer_(here_);
    return started;
  }

  const run_observer& observer_;
  run_point here_;
  std::array<std::uint64_t, 4> counts_{};
  std::uint64_t sequence_ = 0;
};

template <class Engine>
void train_step(Engine& engine, int rank, std::uint64_t step) {
  const model_layout& layout = engine.layout();
  const auto uses = layout.uses();
  auto pass = engine.train();
  for (const unit_id unit : uses) {
    auto scope = pass.forward(unit);
    std::move(scope).finish();
  }
  for (auto unit = uses.rbegin(); unit != uses.rend(); ++unit) {
    auto scope = pass.backward(*unit);
    for (const tensor_id tensor : layout.tensors(*unit)) {
      const tensor_info info = layout.info(tensor);
      if (!info.trainable) continue;
      std::vector<float> gradient(info.elements);
      for (std::uint64_t i = 0; i < info.elements; ++i) {
        gradient[i] = integer_gradient({rank, step, 0, info.key, i});
      }
      scope.add(tensor, gradient);
    }
    std::move(scope).finish();
  }
  pass.end();
  engine.step({.lr = 0.01});
}

template <Stage S, Precision P>
std::vector<std::uint32_t> train_as(any_communicator& communicator,
                                    const process_training& training,
                                    const run_observer& observer) {
  watched watch(communicator, observer);
  any_communicator ranks(watch);
  const model_layout layout = layout_of(training.tensors);
  watch.enter(run_phase::construction);
  engine<S, P, any_communicator, adamw> engine(ranks, layout, training.optimizer, training.options);
  watch.enter(run_phase::initialization);
  engine.initialize(initial_values);
  watch.enter(run_phase::import);
  const std::vector<float> imported(layout.info(tensor_id{0}).elements, 0.5F);
  engine.import_tensor(tensor_id{0}, imported, from_rank{0});
  for (std::uint64_t step = 0; step < training.steps; ++step) {
    watch.pause(step);
    watch.enter(run_phase::step, step);
    train_step(engine, ranks.rank(), step);
  }
  watch.enter(run_phase::idle, training.steps);
  std::vector<std::uint32_t> bits;
  for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
    std::vector<float> values(layout.info(tensor_id{t}).elements);
    engine.export_tensor(tensor_id{t}, values);
    for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return bits;
}

}  // namespace

std::vector<described_tensor> process_tensors() {
  std::vector<described_tensor> tensors;
  for (std::uint64_t unit = 0; unit < process_units; ++unit) {
    const std::string name = "unit" + std::to_string(unit);
    tensors.push_back({name + ".weight", {7 + unit, 11}});
    tensors.push_back({name + ".bias", {5 + 2 * unit}, no_decay});
  }
  return tensors;
}

model_layout layout_of(const std::vector<described_tensor>& tensors) {
  model_layout layout;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const described_tensor& tensor = tensors[t];
    if (t % 2 == 0) layout.add_unit("unit" + std::to_string(t / 2));
    layout.add_tensor(unit_id{static_cast<std::uint32_t>(t / 2)}, tensor.name, tensor.shape,
                      tensor.group, {.trainable = tensor.is_trainable});
  }
  return layout;
}

std::vector<std::uint32_t> train(any_communicator& communicator, const process_training& training,
                                 const run_observer& observer) {
  if (training.precision == process_precision::bf16_mixed) {
    if (training.stage != 1) throw usage_error("bf16_mixed is built for stage 1 alone");
    return train_as<stage1, bf16_mixed>(communicator, training, observer);
  }
  switch (training.stage) {
    case 0:
      return train_as<stage0, fp32>(communicator, training, observer);
    case 1:
      return train_as<stage1, fp32>(communicator, training, observer);
    case 2:
      return train_as<stage2, fp32>(communicator, training, observer);
    case 3:
      return train_as<stage3, fp32>(communicator, training, observer);
    default:
      throw usage_error("no stage " + std::to_string(training.stage));
  }
}

void compare_versions(any_communicator& communicator, bool is_odd_one,
                      const run_observer& observer) {
  watched watch(communicator, observer);
  any_communicator ranks(watch);
  const model_layout layout = layout_of(process_tensors());
  fingerprint print = fingerprint_of<stage1, fp32>(layout, adamw{}, {.ranks = communicator.size()});
  if (is_odd_one) ++print.words.back();
  moved_elements line;
  detail::traffic<any_communicator> wire(ranks, line, 0);
  detail::executor<host_space> host(ranks);
  detail::fingerprint_exchange<any_communicator>(wire, layout, host, {}).compare(print);
}

}  // namespace zero::test
