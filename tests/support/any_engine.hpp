// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/delaying.hpp>
#include <zero/backends/faulty.hpp>
#include <zero/backends/metered.hpp>
#include <zero/backends/threads.hpp>
#include <zero/engine_options.hpp>
#include <zero/ledger.hpp>
#include <zero/plan.hpp>

// Engines behind one small virtual interface, so that each type is instantiated once
// (support/engines/*.cpp) and test cases can loop over stages, precisions and optimizers.

namespace zero::test {

/// The one communicator of the tests: what it does, and to which backend, is switched at run time.
using counted_communicator = metered<delaying<faulty<any_communicator>>>;

/// The layers of one rank's communicator, ready to use.
struct rank_communicator {
  template <HasTopology C>
  explicit rank_communicator(C& ranks, delaying_options delays = {})
      : any(ranks), faults(any), delay(faults, delays), counter(delay) {}

  any_communicator any;
  faulty<any_communicator> faults;
  delaying<faulty<any_communicator>> delay;
  counted_communicator counter;
};

enum class stage_kind { stage0, stage1, stage2, stage3, stage3_keep_gathered };
enum class precision_kind {
  fp32,
  bf16_mixed,
  fp16_mixed,
  bf16_mixed_fp32_gradients,
  bf16_remainder,
};
enum class optimizer_kind { adamw, adam, sgd, lion };

inline constexpr stage_kind all_stages[] = {stage_kind::stage0, stage_kind::stage1,
                                            stage_kind::stage2, stage_kind::stage3,
                                            stage_kind::stage3_keep_gathered};

/// Which engine. The optimizer's weight decay is a field of its own because tests vary it.
struct engine_choice {
  stage_kind stage = stage_kind::stage0;
  precision_kind precision = precision_kind::fp32;
  optimizer_kind optimizer = optimizer_kind::adamw;
  double weight_decay = 0.01;
};

std::string name_of(stage_kind stage);
std::string name_of(precision_kind precision);
std::string name_of(optimizer_kind optimizer);
std::string name_of(const engine_choice& choice);

/// The precisions of this build: all of them, or in the reduced build the two that matter most
/// for races.
std::vector<precision_kind> built_precisions();
/// All (stage, precision, optimizer) of this build.
std::vector<engine_choice> built_engines();

stage_flags flags_of(stage_kind stage);
element_bytes bytes_of(precision_kind precision, optimizer_kind optimizer);

/// A unit that is open; destroying it closes the unit.
class any_scope {
 public:
  virtual ~any_scope() = default;
  virtual std::vector<float> read(tensor_id tensor) const = 0;
  /// Adds to the gradient (backward only).
  virtual void add(tensor_id tensor, std::span<const float> values) const = 0;
  /// Writes the gradient without zero-fill (backward only).
  virtual void overwrite(tensor_id tensor, std::span<const float> values) const = 0;
  virtual void finish() = 0;
};

/// A pass that is open; destroying it ends the pass.
class any_pass {
 public:
  virtual ~any_pass() = default;
  virtual std::unique_ptr<any_scope> forward(unit_id unit) = 0;
  virtual std::unique_ptr<any_scope> backward(unit_id unit) = 0;
  virtual void forward_again() = 0;
  virtual void open(unit_id unit, direction way) = 0;
  virtual void close(unit_id unit) = 0;
  virtual void gradient_ready(tensor_id tensor) = 0;
  /// Adds to a replicated gradient without a scope. Throws: usage_error at stages 2 and 3.
  virtual void add_replicated(tensor_id tensor, std::span<const float> values) = 0;
  virtual float loss_scale() const = 0;
  virtual void end() = 0;
};

using initializer = std::function<void(const tensor_info&, std::uint64_t, std::span<float>)>;
using visitor = std::function<void(const tensor_info&, std::uint64_t, std::span<const float>)>;

class any_engine {
 public:
  virtual ~any_engine() = default;
  virtual void initialize(const initializer& values) = 0;
  virtual void import_tensor(tensor_id tensor, std::span<const float> values, from_rank rank) = 0;
  virtual void import_tensor(tensor_id tensor, std::span<const float> values,
                             same_on_all_ranks_t) = 0;
  virtual std::vector<float> export_tensor(tensor_id tensor) = 0;
  /// The stored bits of the parameters, widened.
  virtual std::vector<std::uint32_t> export_parameter_bits(tensor_id tensor) = 0;
  virtual void for_each_owned(owned_state which, const visitor& visit) = 0;
  virtual std::unique_ptr<any_pass> train(micro_batch_position position = {}) = 0;
  virtual std::unique_ptr<any_pass> evaluate() = 0;
  virtual step_report step(const step_arguments& arguments) = 0;
  virtual const model_layout& layout() const = 0;
  virtual const zero::plan& plan() const = 0;
  virtual const zero::ledger& ledger() const = 0;
  virtual std::uint64_t steps() const = 0;
  virtual std::uint64_t skipped_steps() const = 0;
  virtual double loss_scale() const = 0;
  virtual std::uint64_t overflows_at_minimum_scale() const = 0;
};

/// Builds an engine. Throws: what its constructor throws; usage_error for a type that this build
/// does not hold.
std::unique_ptr<any_engine> make_engine(const engine_choice& choice,
                                        counted_communicator& communicator,
                                        const model_layout& layout,
                                        const engine_options& options = {});

}  // namespace zero::test
