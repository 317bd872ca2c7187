// SPDX-License-Identifier: Apache-2.0
// Policies that the library does not know, and what the known ones promise about their masters.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/kernels/update.hpp>

#include "emulated_ops.hpp"
#include "kernel_cases.hpp"

namespace {

using namespace kernel_tests;

/// What bf16_remainder does, with the whole master stored: the same values must come out.
struct ties_away_with_master {
  static constexpr std::string_view name = "ties_away_with_master";
  using parameter_type = zero::bfloat16;
  using gradient_type = zero::bfloat16;
  using accumulation_type = float;
  using moment_type = float;
  using compute_type = float;
  using master_storage = float;
  using loss_scaling = zero::no_loss_scaling;
  static constexpr bool scales_before_rounding = false;

  static float load(zero::bfloat16, float master) { return master; }
  static void store(float value, zero::bfloat16& parameter, float& master) {
    master = value;
    parameter = zero::split_ties_away(value).high;
  }
};

/// No master, bf16 moments, and a load and store that multiply: a product that could be fused with
/// the optimizer's additions, differently on every path.
struct scaled_bf16 {
  static constexpr std::string_view name = "scaled_bf16";
  using parameter_type = float;
  using gradient_type = zero::bfloat16;
  using accumulation_type = float;
  using moment_type = zero::bfloat16;
  using compute_type = float;
  using master_storage = void;
  using loss_scaling = zero::no_loss_scaling;
  static constexpr bool scales_before_rounding = false;

  static float load(float parameter, zero::no_master) { return parameter * 0.3F; }
  static void store(float value, float& parameter, zero::no_master&) { parameter = value / 0.3F; }
};

/// Everything in double, 16-bit gradients.
struct fp64 {
  static constexpr std::string_view name = "fp64";
  using parameter_type = double;
  using gradient_type = zero::bfloat16;
  using accumulation_type = double;
  using moment_type = double;
  using compute_type = double;
  using master_storage = void;
  using loss_scaling = zero::no_loss_scaling;
  static constexpr bool scales_before_rounding = false;

  static double load(double parameter, zero::no_master) { return parameter; }
  static void store(double value, double& parameter, zero::no_master&) { parameter = value; }
};

/// An optimizer without moments that adds to the parameter directly.
struct plain_difference {
  static constexpr std::string_view name = "plain_difference";
  static constexpr std::size_t moments_per_element = 0;
  static constexpr std::size_t scalar_count = 1;
  double weight_decay = 0.0;

  std::array<double, 1> prepare(std::uint64_t, const zero::update_arguments& arguments) const {
    return {arguments.lr};
  }
  template <class Ops, class V>
  static void update(V& parameter, std::array<V, 0>&, const V& gradient,
                     const std::array<V, 1>& scalars) {
    parameter = Ops::sub(parameter, Ops::div(gradient, scalars[0]));
  }
};

static_assert(zero::Optimizer<plain_difference>);
static_assert(zero::Precision<ties_away_with_master>);
static_assert(zero::Precision<scaled_bf16>);
static_assert(zero::Precision<fp64>);

template <class O, class P>
void require_same_on_every_path() {
  using states = model_states<O, P, typename P::gradient_type>;
  for (std::size_t count = 0; count <= 60; ++count) {
    const states start(count, count % 3, count, true);
    states expected = start;
    expected.step(1, isa::scalar);
    for (const isa path : vector_paths()) {
      states actual = start;
      actual.step(1, path);
      const std::string difference = actual.difference(expected);
      if (!difference.empty())
        FAIL(P::name << ", count " << count << ": " << difference);
    }
  }
}

TEST_CASE("update: policies of the user work on every path, bit for bit") {
  require_same_on_every_path<zero::adamw, ties_away_with_master>();
  require_same_on_every_path<zero::adamw, scaled_bf16>();
  require_same_on_every_path<zero::sgd, scaled_bf16>();
  require_same_on_every_path<plain_difference, scaled_bf16>();
  require_same_on_every_path<plain_difference, zero::fp16_mixed>();
  require_same_on_every_path<zero::lion, scaled_bf16>();
}

TEST_CASE("update: compute_type double") {
  const std::size_t count = 11;
  std::vector<double> parameters(count, 1.0);
  std::vector<double> moment(count, 0.0);
  const std::vector<zero::bfloat16> gradients(count, zero::bfloat16{0.5F});
  zero::kernels::update_operands<zero::sgd, fp64, zero::bfloat16> operands;
  operands.parameters = parameters.data();
  operands.moments = {moment.data()};
  operands.gradients = gradients.data();
  operands.count = count;
  const auto scalars = zero::sgd{}.prepare(1, {.lr = 0.1, .weight_decay = 0.0});
  zero::kernels::update(zero::host_space{}, operands, scalars, 1.0F);
  for (const double parameter : parameters)
    CHECK(parameter == std::fma(-0.1, 0.5, 1.0));
}

TEST_CASE("bf16_remainder: the same weights and masters as with a stored master, 100 steps") {
  const std::size_t count = 1001;
  using remainder = model_states<zero::adamw, zero::bf16_remainder, zero::bfloat16>;
  using stored = model_states<zero::adamw, ties_away_with_master, zero::bfloat16>;
  for (const isa path : {isa::scalar, zero::kernels::cpu::instruction_set()}) {
    remainder with_remainder(count, 0, 5, false);
    stored with_master(count, 0, 5, false);
    for (std::uint64_t step = 1; step <= 100; ++step) {
      sequence gradients(step);
      for (std::size_t i = 0; i < count; ++i) {
        const zero::bfloat16 gradient{gradients.unit()};
        with_remainder.gradients[i] = gradient;
        with_master.gradients[i] = gradient;
      }
      with_remainder.step(step, path);
      with_master.step(step, path);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const zero::bfloat16 parameter = with_remainder.parameters[i];
      const float master = zero::join_float(parameter, with_remainder.masters[i]);
      if (parameter.bits() != with_master.parameters[i].bits() ||
          master != with_master.masters[i]) {
        FAIL("element " << i);
      }
    }
  }
}

TEST_CASE("fault_29 a bf16 weight follows its master through steps smaller than its spacing") {
  const std::size_t count = 19;
  for (const isa path : {isa::scalar, zero::kernels::cpu::instruction_set()}) {
    std::vector<zero::bfloat16> parameters(count, zero::bfloat16{1.0F});
    std::vector<float> masters(count, 1.0F);
    std::vector<float> m(count, 0.0F);
    std::vector<float> v(count, 0.0F);
    const std::vector<zero::bfloat16> gradients(count, zero::bfloat16{0.5F});
    const zero::kernels::update_operands<zero::adam, zero::bf16_mixed, zero::bfloat16> operands{
        parameters.data(), masters.data(), {m.data(), v.data()}, gradients.data(), count};
    for (std::uint64_t step = 1; step <= 100; ++step) {
      const auto scalars = zero::adam{}.prepare(step, {.lr = 1e-3, .weight_decay = 0.0});
      zero::kernels::update(zero::host_space{}, operands, scalars, 1.0F, path);
    }
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(masters[i] == Approx(0.9F).epsilon(2e-6));
      CHECK(static_cast<float>(parameters[i]) == 0.8984375F);
    }
  }
}

}  // namespace
