// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/any_engine.hpp"
#include "support/rank_runner.hpp"

// The plain training loop of the tests: gradients are a function of where they belong, so that
// every engine is asked the same question.

namespace zero::test {

/// Where a gradient element belongs.
struct gradient_site {
  int rank = 0;
  std::uint64_t step = 0;
  std::uint64_t micro_batch = 0;
  std::uint64_t tensor_key = 0;
  std::uint64_t index = 0;
};
using gradient_function = std::function<float(const gradient_site&)>;

/// Integers from -4 to 4, different at every site: their sums are exact in every precision.
float integer_gradient(const gradient_site& site);
/// Values of about unit size with full mantissas.
float real_gradient(const gradient_site& site);
/// Initial values between -1 and 1, by tensor key and index alone.
void initial_values(const tensor_info& tensor, std::uint64_t first, std::span<float> values);

struct training_options {
  std::uint64_t steps = 3;
  std::uint64_t micro_batches = 1;
  step_arguments arguments = {.lr = 0.01};
  gradient_function gradient = integer_gradient;
  bool uses_scopes = true;  ///< false: the open / close form
};

/// One micro-batch: forward over all uses, backward in reverse, gradients multiplied by the loss
/// scale as a user does.
void run_micro_batch(any_engine& engine, int rank, const training_options& options,
                     micro_batch_position position, std::uint64_t step);

/// All steps; returns their reports.
std::vector<step_report> run_steps(any_engine& engine, int rank, const training_options& options);

/// Everything that must agree between stages, backends and schedules: parameters as stored, fp32
/// values, and the norms of all steps.
struct trained_state {
  std::vector<std::uint32_t> parameter_bits;
  std::vector<float> values;
  std::vector<double> norms;
  friend bool operator==(const trained_state&, const trained_state&) = default;
};
trained_state state_of(any_engine& engine, const std::vector<step_report>& reports);

/// Options with a loss scale at which fp16 gradients of a few units do not overflow.
inline engine_options test_settings(accumulation mode = accumulation::none) {
  return {.accumulation = mode, .loss_scale = {.initial = 256.0}};
}

/// Trains `layout` on `ranks` threads and returns rank 0's state. Throws: what a rank throws, and
/// zero::error when the ranks end with different states or a ledger differs from the estimate.
trained_state train(const engine_choice& choice, int ranks, const model_layout& layout,
                    const training_options& options,
                    const engine_options& settings = test_settings(),
                    delaying_options delays = {});

/// Builds an initialised engine on every rank and returns `function(engine, rank, communicator)` of
/// all of them. Throws: the first cause.
template <class Function>
auto on_ranks(const engine_choice& choice, int ranks, const model_layout& layout,
              const engine_options& settings, Function function) {
  return run_threads(ranks, long_timeout, [&](threads_communicator& threads) {
    rank_communicator communicator(threads);
    const auto engine = make_engine(choice, communicator.counter, layout, settings);
    engine->initialize(initial_values);
    return function(*engine, threads.rank(), communicator);
  });
}

/// Runs one step whose gradient is `value(tensor, index)` on this rank.
using local_gradient = std::function<float(const tensor_info&, std::uint64_t)>;
step_report run_step(any_engine& engine, const local_gradient& value,
                     const step_arguments& arguments = {.lr = 0.01});
/// One micro-batch of it.
void run_micro_batch(any_engine& engine, const local_gradient& value,
                     micro_batch_position position = {});

/// Empty when ledger, arena, meter and estimate agree on this rank, else what differs.
std::string accounting_difference(any_engine& engine, const engine_choice& choice,
                                  const counted_communicator& communicator,
                                  const engine_options& settings, std::uint64_t micro_batches);

/// A model with everything a layout can have: several units, a tied head, frozen tensors, an empty
/// tensor, a group of its own, sizes that no N divides.
model_layout sample_layout(std::uint64_t alignment_bytes = 64);

/// A random model; `seed` decides everything.
model_layout random_layout(std::uint64_t seed);

/// What a random layout turned out to contain.
struct layout_traits {
  bool has_uneven = false;  ///< a unit whose trainable elements N does not divide
  bool has_empty = false;
  bool has_frozen = false;
  bool has_tied = false;
};
layout_traits traits_of(const model_layout& layout, int ranks);

}  // namespace zero::test
