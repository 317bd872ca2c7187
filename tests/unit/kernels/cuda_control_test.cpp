// SPDX-License-Identifier: Apache-2.0
// labels: kernel_host
#include <zero/kernels/cuda/control_body.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "kernel_cases.hpp"
#include "support/cuda_bodies.hpp"

namespace {

using kernel_tests::sequence;
namespace cuda = zero::kernels::cuda;
using zero::kernels::control_block;
using zero::kernels::step_request;
using message = std::array<double, zero::kernels::step_message_elements>;

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0 || (std::isnan(a) && std::isnan(b));
}

/// One rank as a device has it: everything that `advance` reads and writes.
template <class O, class P>
struct device_rank {
  control_block control = zero::kernels::initial_control({});
  step_request request;
  std::vector<zero::update_arguments> groups;
  std::vector<typename P::compute_type> scalars;

  message part(double sum_of_squares, bool is_counted = true) const {
    message result;
    cuda_bodies::run_all_threads(
        cuda::step_message_body{&control, &request, &sum_of_squares, is_counted, result.data()}, 3);
    return result;
  }
  void advance(const O& optimizer, const message& sums, int ranks) {
    scalars.resize(groups.size() * O::scalar_count);
    cuda_bodies::run_all_threads(
        cuda::advance_body<O, P>{
            optimizer,
            {&control, &request, sums.data(), groups.data(),
             static_cast<std::uint32_t>(groups.size()), ranks, scalars.data()}},
        3);
  }
};

/// The same decisions, written down once more in plain arithmetic.
template <class O, class P>
struct expected_rank {
  double scale = zero::loss_scale_options{}.initial;
  std::uint64_t window = 0;
  std::uint64_t finite_steps = 0;
  std::uint64_t overflows_at_minimum = 0;
  std::uint64_t steps = 0;
  std::uint64_t skipped_steps = 0;
  double norm = 0;
  float factor = 0;
  std::vector<std::array<double, O::scalar_count>> scalars;

  static constexpr bool is_dynamic = P::loss_scaling::is_dynamic;
  double loss_scale() const { return is_dynamic ? scale : 1.0; }

  void step(const O& optimizer, const step_request& request,
            const std::vector<zero::update_arguments>& groups, double squares) {
    const double unscale = request.multiplier / (request.divisor * loss_scale());
    norm = std::sqrt(squares) * unscale;
    const double clip = request.clip > 0 && norm > request.clip ? request.clip / norm : 1.0;
    factor = static_cast<float>(unscale * clip);
    if (!std::isfinite(squares)) {
      ++skipped_steps;
      finite_steps = 0;
      if (scale <= 1.0) ++overflows_at_minimum;
      scale = std::max(scale / 2, 1.0);
      return;
    }
    ++steps;
    scalars.clear();
    for (const auto& group : groups) scalars.push_back(optimizer.prepare(steps, group));
    if (++finite_steps == window) {
      finite_steps = 0;
      scale = std::min(scale * 2, 16777216.0);
    }
  }
};

template <class O, class P>
void require_expected_decisions(std::uint64_t seed) {
  INFO(O::name << ' ' << P::name << ", seed " << seed);
  sequence random(seed);
  const O optimizer{};
  device_rank<O, P> device;
  expected_rank<O, P> expected;
  device.control.scaling.window = expected.window = 5;

  for (int i = 0; i < 200; ++i) {
    device.request.divisor = 1 + random.bits() % 7;
    device.request.multiplier = 1 + random.bits() % 3;
    device.request.clip = random.bits() % 2 == 0 ? 0.0 : 0.25 * (random.bits() % 8);
    device.groups.clear();
    for (std::uint32_t g = 0; g < 1 + random.bits() % 3; ++g) {
      device.groups.push_back({0.001 * (random.bits() % 100), 0.01 * (random.bits() % 10)});
    }
    const bool is_bad = random.bits() % 8 == 0;
    const double squares = is_bad ? (random.bits() % 2 == 0 ? infinity : std::nan(""))
                                  : std::ldexp(1.0 + random.bits(), -20);
    const double used_scale = expected.loss_scale();
    const message sums = device.part(squares);
    expected.step(optimizer, device.request, device.groups, squares);
    device.advance(optimizer, sums, 1);

    const control_block& control = device.control;
    REQUIRE(control.arguments_differ == 0);
    REQUIRE((control.found_inf != 0) == is_bad);
    REQUIRE(control.steps == expected.steps);
    REQUIRE(control.skipped_steps == expected.skipped_steps);
    REQUIRE(same_bits(control.grad_norm, expected.norm));
    REQUIRE(same_bits(control.gradient_scale, expected.factor));
    REQUIRE(same_bits(control.step_loss_scale, used_scale));
    if (P::loss_scaling::is_dynamic) {
      REQUIRE(same_bits(control.loss_scale, expected.scale));
      REQUIRE(control.overflows_at_minimum == expected.overflows_at_minimum);
    } else {
      REQUIRE(control.loss_scale == device.control.scaling.initial);
    }
    for (std::size_t g = 0; g < device.groups.size() && !is_bad; ++g) {
      for (std::size_t k = 0; k < O::scalar_count; ++k) {
        REQUIRE(same_bits(device.scalars[g * O::scalar_count + k],
                          static_cast<typename P::compute_type>(expected.scalars[g][k])));
      }
    }
  }
}

TEST_CASE("cuda control: 200 steps decide as plain arithmetic does, bit for bit") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    require_expected_decisions<zero::adamw, zero::fp16_mixed>(seed);
    require_expected_decisions<zero::adam, zero::bf16_mixed>(seed);
    require_expected_decisions<zero::sgd, zero::fp32>(seed);
    require_expected_decisions<zero::lion, zero::bf16_remainder>(seed);
  }
}

template <class O>
void require_host_scalars() {
  const O optimizer{};
  const zero::update_arguments arguments{3e-4, 0.1};
  for (std::uint64_t step = 1; step < 5000000000U; step = step < 3000 ? step + 1 : step * 3 + 1) {
    const auto expected = optimizer.prepare(step, arguments);
    std::array<double, O::scalar_count> actual{};
    optimizer.template step_scalars<cuda::cuda_ops<double>>(step, arguments, actual.data());
    if (std::memcmp(actual.data(), expected.data(), sizeof(actual)) != 0) {
      FAIL(O::name << ", step " << step);
    }
  }
}

TEST_CASE("cuda control: the scalars of any step are prepare()'s") {
  require_host_scalars<zero::adamw>();
  require_host_scalars<zero::adam>();
  require_host_scalars<zero::sgd>();
  require_host_scalars<zero::lion>();
}

TEST_CASE("cuda control: the message has the squares, the verdict and three parts of a hash") {
  device_rank<zero::adamw, zero::fp16_mixed> rank;
  rank.request.arguments_hash = 42;
  const std::uint64_t hash = zero::kernels::step_hash(rank.control, rank.request);
  for (const double squares : {0.0, 1.5, infinity, std::nan("")}) {
    for (const bool is_counted : {true, false}) {
      message expected = {is_counted ? squares : 0.0, std::isfinite(squares) ? 0.0 : 1.0};
      for (std::size_t i = 0; i < 3; ++i) {
        const auto part = static_cast<double>(hash >> (16 * i) & 0xffffU);
        expected[2 + 2 * i] = part;
        expected[3 + 2 * i] = part * part;
      }
      const message actual = rank.part(squares, is_counted);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(same_bits(actual[i], expected[i]));
      }
    }
  }
}

message sum_of(const std::vector<message>& parts) {
  message sums = {};
  for (const message& part : parts) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
  }
  return sums;
}

TEST_CASE("cuda control: every rank sees that one of them asked for another step") {
  using rank_type = device_rank<zero::adamw, zero::fp16_mixed>;
  const auto differs = [](auto change) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (int odd_one = 0; odd_one < ranks; ++odd_one) {
        std::vector<rank_type> all(static_cast<std::size_t>(ranks));
        for (auto& rank : all) rank.groups = {{0.1, 0.0}};
        change(all[static_cast<std::size_t>(odd_one)]);
        std::vector<message> parts;
        for (const auto& rank : all) parts.push_back(rank.part(2.0));
        const message sums = sum_of(parts);
        for (auto& rank : all) {
          const control_block before = rank.control;
          rank.advance({}, sums, ranks);
          if (rank.control.arguments_differ == 0 || rank.control.found_inf == 0 ||
              rank.control.steps != before.steps ||
              rank.control.skipped_steps != before.skipped_steps ||
              rank.control.loss_scale != before.loss_scale) {
            return false;
          }
        }
      }
    }
    return true;
  };
  CHECK(differs([](rank_type& rank) { rank.request.arguments_hash = 1; }));
  CHECK(differs([](rank_type& rank) { rank.request.divisor = 2; }));
  CHECK(differs([](rank_type& rank) { rank.request.multiplier = 2; }));
  CHECK(differs([](rank_type& rank) { rank.request.clip = 0.5; }));
  CHECK(differs([](rank_type& rank) { rank.control.steps = 1; }));
  CHECK(differs([](rank_type& rank) { rank.control.skipped_steps = 1; }));
  CHECK(differs([](rank_type& rank) { rank.control.loss_scale = 2; }));
  CHECK_FALSE(differs([](rank_type&) {}));
}

TEST_CASE("cuda control: one rank's overflow skips the step of all") {
  std::vector<device_rank<zero::adamw, zero::fp16_mixed>> all(3);
  std::vector<message> parts;
  for (auto& rank : all) parts.push_back(rank.part(&rank == &all[1] ? infinity : 1.0, false));
  const message sums = sum_of(parts);
  CHECK(sums[0] == 0);  // no rank's squares count here: the verdict travels on its own
  for (auto& rank : all) {
    rank.advance({}, sums, 3);
    CHECK(rank.control.found_inf == 1);
    CHECK(rank.control.arguments_differ == 0);
    CHECK(rank.control.skipped_steps == 1);
    CHECK(rank.control.loss_scale == 32768.0);
  }
}

}  // namespace
