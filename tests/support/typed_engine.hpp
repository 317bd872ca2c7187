// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include <zero/engine.hpp>
#include <zero/kernels/cast.hpp>

#include "support/any_engine.hpp"

// The one place that turns an engine type into an any_engine. Included by support/engines only.

namespace zero::test {

template <class Scope>
class typed_scope final : public any_scope {
 public:
  explicit typed_scope(Scope&& scope) : scope_(std::move(scope)) {}

  std::vector<float> read(tensor_id tensor) const override {
    std::vector<float> values(scope_.parameters(tensor).size());
    scope_.read(tensor, values);
    return values;
  }
  void add(tensor_id tensor, std::span<const float> values) const override {
    if constexpr (requires { scope_.add(tensor, values); }) {
      scope_.add(tensor, values);
    } else {
      throw usage_error("a forward scope has no gradients");
    }
  }
  void overwrite(tensor_id tensor, std::span<const float> values) const override {
    if constexpr (requires { scope_.gradients(tensor, zero::overwrite); }) {
      const auto gradients = scope_.gradients(tensor, zero::overwrite);
      kernels::convert(host_space{}, values.data(), gradients.data(), gradients.size());
    } else {
      throw usage_error("a forward scope has no gradients");
    }
  }
  void finish() override { std::move(scope_).finish(); }

 private:
  Scope scope_;
};

template <class Pass>
class typed_pass final : public any_pass {
 public:
  explicit typed_pass(Pass&& pass) : pass_(std::move(pass)) {}

  std::unique_ptr<any_scope> forward(unit_id unit) override { return wrap(pass_.forward(unit)); }
  std::unique_ptr<any_scope> backward(unit_id unit) override {
    return training([&](auto& pass) -> std::unique_ptr<any_scope> {
      return wrap(pass.backward(unit));
    });
  }
  void forward_again() override { pass_.forward_again(); }
  void open(unit_id unit, direction way) override {
    training([&](auto& pass) { pass.open(unit, way); });
  }
  void close(unit_id unit) override {
    training([&](auto& pass) { pass.close(unit); });
  }
  void gradient_ready(tensor_id tensor) override {
    training([&](auto& pass) { pass.gradient_ready(tensor); });
  }
  void add_replicated(tensor_id tensor, std::span<const float> values) override {
    if constexpr (requires { requires Pass::has_replicated_gradients; }) {
      const auto gradients = pass_.gradients(tensor);
      kernels::accumulate(host_space{}, values.data(), gradients.data(), gradients.size());
    } else {
      throw usage_error("there are no replicated gradients");
    }
  }
  float loss_scale() const override {
    if constexpr (requires { pass_.loss_scale(); }) {
      return pass_.loss_scale();
    } else {
      throw usage_error("an evaluation pass has no loss scale");
    }
  }
  void end() override { pass_.end(); }

 private:
  template <class Scope>
  static std::unique_ptr<any_scope> wrap(Scope&& scope) {
    return std::make_unique<typed_scope<Scope>>(std::move(scope));
  }
  template <class Function>
  auto training(Function function) {
    if constexpr (requires { pass_.loss_scale(); }) {
      return function(pass_);
    } else {
      throw usage_error("an evaluation pass has no backward");
      return decltype(function(std::declval<never_pass&>()))();
    }
  }
  // Stands for a training pass where there is none, so that `training` has a return type.
  struct never_pass {
    std::unique_ptr<any_scope> backward(unit_id);
    void open(unit_id, direction);
    void close(unit_id);
    void gradient_ready(tensor_id);
  };

  Pass pass_;
};

template <class Engine>
class typed_engine final : public any_engine {
 public:
  using optimizer_type = typename Engine::optimizer_type;

  typed_engine(counted_communicator& communicator, const model_layout& layout,
               const optimizer_type& optimizer, const engine_options& options)
      : engine_(communicator, layout, optimizer, options) {}

  void initialize(const initializer& values) override { engine_.initialize(values); }
  void import_tensor(tensor_id tensor, std::span<const float> values, from_rank rank) override {
    engine_.import_tensor(tensor, values, rank);
  }
  void import_tensor(tensor_id tensor, std::span<const float> values,
                     same_on_all_ranks_t same) override {
    engine_.import_tensor(tensor, values, same);
  }
  std::vector<float> export_tensor(tensor_id tensor) override {
    std::vector<float> values(engine_.layout().info(tensor).elements);
    engine_.export_tensor(tensor, values);
    return values;
  }
  std::vector<std::uint32_t> export_parameter_bits(tensor_id tensor) override {
    std::vector<typename Engine::parameter_type> values(engine_.layout().info(tensor).elements);
    engine_.export_parameters(tensor, values);
    std::vector<std::uint32_t> bits;
    for (const auto value : values) bits.push_back(bits_of(value));
    return bits;
  }
  void for_each_owned(owned_state which, const visitor& visit) override {
    engine_.for_each_owned(which, visit);
  }
  std::unique_ptr<any_pass> train(micro_batch_position position) override {
    return std::make_unique<typed_pass<typename Engine::pass>>(engine_.train(position));
  }
  std::unique_ptr<any_pass> evaluate() override {
    return std::make_unique<typed_pass<typename Engine::evaluation>>(engine_.evaluate());
  }
  step_report step(const step_arguments& arguments) override {
    return engine_.step(arguments).get();
  }
  const model_layout& layout() const override { return engine_.layout(); }
  const zero::plan& plan() const override { return engine_.plan(); }
  const zero::ledger& ledger() const override { return engine_.ledger(); }
  std::uint64_t steps() const override { return engine_.steps(); }
  std::uint64_t skipped_steps() const override { return engine_.skipped_steps(); }
  double loss_scale() const override { return engine_.loss_scale(); }
  std::uint64_t overflows_at_minimum_scale() const override {
    return engine_.overflows_at_minimum_scale();
  }

 private:
  static std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
  template <class T>
  static std::uint32_t bits_of(T value) {
    return value.bits();
  }

  Engine engine_;
};

/// One function per engine type, defined in support/engines.
template <class S, class P, class O>
std::unique_ptr<any_engine> make_typed(counted_communicator& communicator,
                                       const model_layout& layout, double weight_decay,
                                       const engine_options& options);

#define ZERO_TEST_ENGINE(S, P, O)                                                               \
  template <>                                                                                   \
  std::unique_ptr<any_engine> make_typed<S, P, O>(                                              \
      counted_communicator & communicator, const model_layout& layout, double weight_decay,     \
      const engine_options& options) {                                                          \
    O optimizer{};                                                                              \
    optimizer.weight_decay = static_cast<decltype(optimizer.weight_decay)>(weight_decay);       \
    return std::make_unique<typed_engine<engine<S, P, counted_communicator, O>>>(               \
        communicator, layout, optimizer, options);                                              \
  }

#define ZERO_TEST_ENGINES_OF_ALL_STAGES(P, O) \
  ZERO_TEST_ENGINE(stage0, P, O)              \
  ZERO_TEST_ENGINE(stage1, P, O)              \
  ZERO_TEST_ENGINE(stage2, P, O)              \
  ZERO_TEST_ENGINE(stage3, P, O)              \
  ZERO_TEST_ENGINE(stage3_keep_gathered, P, O)

#define ZERO_TEST_ENGINES_OF_TWO_STAGES(P, O) \
  ZERO_TEST_ENGINE(stage1, P, O)              \
  ZERO_TEST_ENGINE(stage3, P, O)

}  // namespace zero::test
