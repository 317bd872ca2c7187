// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <zero/cuda.hpp>
#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/float16.hpp>

#include "support/any_engine.hpp"
#include "support/training.hpp"

// An engine on devices as an any_engine, so that the training loop of the host tests drives it.

namespace zero::test {

/// Values of the host in device memory, for as long as the engine lives: giving memory back would
/// wait for the device, and hide what is not ordered.
class cuda_values {
 public:
  explicit cuda_values(cudaStream_t stream) : stream_(stream) {}
  cuda_values(const cuda_values&) = delete;
  cuda_values& operator=(const cuda_values&) = delete;
  ~cuda_values() {
    for (void* block : blocks_) cudaFree(block);
  }

  float* allocate(std::uint64_t count) {
    void* block = nullptr;
    detail::cuda_try(cudaMalloc(&block, count * sizeof(float)), "cudaMalloc");
    if (block != nullptr) blocks_.push_back(block);
    return static_cast<float*>(block);
  }
  const float* send(std::span<const float> values) {
    float* const there = allocate(values.size());
    copy(there, values.data(), values.size(), cudaMemcpyHostToDevice);
    return there;
  }
  std::vector<float> fetch(const float* there, std::uint64_t count) {
    std::vector<float> values(count);
    copy(values.data(), there, count, cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  void copy(float* to, const float* from, std::uint64_t count, cudaMemcpyKind kind) {
    if (count == 0) return;
    detail::cuda_try(cudaMemcpyAsync(to, from, count * sizeof(float), kind, stream_),
                     "cudaMemcpyAsync");
  }

  cudaStream_t stream_;
  std::vector<void*> blocks_;
};

template <class Scope>
class cuda_typed_scope final : public any_scope {
 public:
  cuda_typed_scope(Scope&& scope, cuda_values& values)
      : scope_(std::move(scope)), values_(values) {}

  std::vector<float> read(tensor_id tensor) const override {
    const std::uint64_t count = scope_.parameters(tensor).size();
    float* const there = values_.allocate(count);
    scope_.read(tensor, range<float, full, cuda_space>(there, count));
    return values_.fetch(there, count);
  }
  void add(tensor_id tensor, std::span<const float> values) const override {
    if constexpr (requires { scope_.gradients(tensor); }) {
      scope_.add(tensor,
                 range<const float, partial, cuda_space>(values_.send(values), values.size()));
    } else {
      throw usage_error("a forward scope has no gradients");
    }
  }
  void overwrite(tensor_id tensor, std::span<const float> values) const override {
    add(tensor, values);
  }
  void finish() override { std::move(scope_).finish(); }

 private:
  Scope scope_;
  cuda_values& values_;
};

template <class Engine, class Pass>
class cuda_typed_pass final : public any_pass {
 public:
  cuda_typed_pass(Pass&& pass, float initial_scale, cuda_values& values, cuda_queue q)
      : pass_(std::move(pass)), initial_scale_(initial_scale), values_(values), queue_(q) {}

  std::unique_ptr<any_scope> forward(unit_id unit) override {
    return wrap(pass_.forward(unit, queue_));
  }
  std::unique_ptr<any_scope> backward(unit_id unit) override {
    if constexpr (requires { pass_.loss_scale(); }) {
      return wrap(pass_.backward(unit, queue_));
    } else {
      throw usage_error("an evaluation pass has no backward");
    }
  }
  void forward_again() override { pass_.forward_again(); }
  void open(unit_id unit, direction way) override {
    if constexpr (requires { pass_.loss_scale(); }) pass_.open(unit, way, queue_);
  }
  void close(unit_id unit) override {
    if constexpr (requires { pass_.loss_scale(); }) pass_.close(unit, queue_);
  }
  void gradient_ready(tensor_id tensor) override {
    if constexpr (requires { pass_.loss_scale(); }) pass_.gradient_ready(tensor, queue_);
  }
  void add_replicated(tensor_id, std::span<const float>) override {
    throw usage_error("not offered for devices");
  }
  /// The host's own knowledge of the value: asking the device would wait for it. Tests that change
  /// the scale look at it where kernels do.
  float loss_scale() const override {
    return Engine::precision::loss_scaling::is_dynamic ? initial_scale_ : 1.0F;
  }
  void end() override { pass_.end(); }

 private:
  template <class Scope>
  std::unique_ptr<any_scope> wrap(Scope&& scope) {
    return std::make_unique<cuda_typed_scope<Scope>>(std::move(scope), values_);
  }

  Pass pass_;
  float initial_scale_;
  cuda_values& values_;
  cuda_queue queue_;
};

template <class Engine>
class cuda_typed_engine final : public any_engine {
 public:
  using communicator = typename Engine::communicator;
  using optimizer_type = typename Engine::optimizer_type;

  cuda_typed_engine(communicator& ranks, const model_layout& layout,
                    const optimizer_type& optimizer, const engine_options& options, cuda_queue q)
      : queue_(q),
        initial_scale_(static_cast<float>(options.loss_scale.initial)),
        values_(q.stream()),
        engine_(ranks, layout, optimizer, options, q) {}

  Engine& typed() noexcept { return engine_; }
  cuda_values& values() noexcept { return values_; }

  /// Steps without waiting for one; their reports at the end.
  std::vector<step_report> run_steps_ahead(int rank, const training_options& options) {
    std::vector<typename Engine::ticket> tickets;
    for (std::uint64_t step = 0; step < options.steps; ++step) {
      for (std::uint64_t m = 0; m < options.micro_batches; ++m) {
        run_micro_batch(*this, rank, options, {m, options.micro_batches}, step);
      }
      tickets.push_back(engine_.step(options.arguments, queue_));
    }
    std::vector<step_report> reports;
    for (const auto& ticket : tickets) reports.push_back(ticket.get());
    return reports;
  }

  void initialize(const initializer& values) override { engine_.initialize(values, queue_); }
  void import_tensor(tensor_id tensor, std::span<const float> values, from_rank rank) override {
    engine_.import_tensor(tensor, values, rank, queue_);
  }
  void import_tensor(tensor_id tensor, std::span<const float> values,
                     same_on_all_ranks_t same) override {
    engine_.import_tensor(tensor, values, same, queue_);
  }
  std::vector<float> export_tensor(tensor_id tensor) override {
    std::vector<float> values(engine_.layout().info(tensor).elements);
    engine_.export_tensor(tensor, values, queue_);
    return values;
  }
  std::vector<std::uint32_t> export_parameter_bits(tensor_id tensor) override {
    std::vector<typename Engine::parameter_type> values(engine_.layout().info(tensor).elements);
    engine_.export_parameters(tensor, values, queue_);
    std::vector<std::uint32_t> bits;
    for (const auto value : values) bits.push_back(bits_of(value));
    return bits;
  }
  void for_each_owned(owned_state which, const visitor& visit) override {
    engine_.for_each_owned(which, visit, queue_);
  }
  std::unique_ptr<any_pass> train(micro_batch_position position) override {
    return std::make_unique<cuda_typed_pass<Engine, typename Engine::pass>>(
        engine_.train(position), initial_scale_, values_, queue_);
  }
  std::unique_ptr<any_pass> evaluate() override {
    return std::make_unique<cuda_typed_pass<Engine, typename Engine::evaluation>>(
        engine_.evaluate(), initial_scale_, values_, queue_);
  }
  step_report step(const step_arguments& arguments) override {
    return engine_.step(arguments, queue_).get();
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

  cuda_queue queue_;
  float initial_scale_;
  cuda_values values_;
  Engine engine_;
};

}  // namespace zero::test
