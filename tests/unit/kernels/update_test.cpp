// SPDX-License-Identifier: Apache-2.0
// timeout: 120
#include <zero/kernels/update.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "emulated_ops.hpp"
#include "kernel_cases.hpp"

namespace {

using namespace kernel_tests;

/// Compares a path with the scalar one for all sizes to 300 at several offsets.
template <class O, class P, class G>
void require_same_as_scalar(isa path) {
  for (std::size_t count = 0; count <= 300; ++count) {
    const std::size_t offset = count % 7;
    model_states<O, P, G> expected(count, offset, count, true);
    auto actual = expected;
    for (std::uint64_t number = 1; number <= 2; ++number) {
      expected.step(number, isa::scalar);
      actual.step(number, path);
    }
    const std::string difference = actual.difference(expected);
    if (!difference.empty()) {
      FAIL(O::name << ' ' << P::name << ", count " << count << ": " << difference);
    }
  }
}

void require_path_equals_scalar(isa path) {
  if (!zero::kernels::cpu::is_supported(path)) {
    WARN(zero::kernels::cpu::isa_name(path) << " not on this CPU: skipped");
    return;
  }
  for_each_combination([&]<class O, class P, class G>() { require_same_as_scalar<O, P, G>(path); });
}

TEST_CASE("update: AVX2 gives the scalar path's bits") {
  require_path_equals_scalar(isa::avx2);
}

TEST_CASE("update: AVX-512 gives the scalar path's bits") {
  require_path_equals_scalar(isa::avx512);
}

TEST_CASE("update: sixteen emulated lanes give the scalar path's bits") {
  for_each_combination([]<class O, class P, class G>() {
    for (std::size_t count = 0; count <= 70; ++count) {
      model_states<O, P, G> expected(count, count % 5, count, true);
      auto actual = expected;
      expected.step(1, isa::scalar);

      const auto scalars = O{}.prepare(1, {.lr = 0.01, .weight_decay = 0.1});
      const auto operands = actual.operands(0, count);
      zero::kernels::cpu::update_kernel<O, P, G> kernel{operands, {}, 0.75F};
      for (std::size_t k = 0; k < scalars.size(); ++k) {
        kernel.scalars[k] = static_cast<float>(scalars[k]);
      }
      kernel.template run<emulated_ops<16>>();
      const std::string difference = actual.difference(expected);
      if (!difference.empty()) {
        FAIL(O::name << ' ' << P::name << ", count " << count << ": " << difference);
      }
    }
  });
}

TEST_CASE("update: any split of a buffer gives the same bits") {
  const std::uint64_t count = 257;
  for_each_combination([&]<class O, class P, class G>() {
    model_states<O, P, G> whole(count, 0, 11, true);
    const auto start = whole;
    const isa best = zero::kernels::cpu::instruction_set();
    whole.step(1, best);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      sequence lengths(seed);
      std::vector<std::size_t> cuts;
      for (std::size_t done = 0; done < count;) {
        const std::size_t length =
            std::min<std::size_t>(lengths.bits() % 40, static_cast<std::size_t>(count) - done);
        cuts.push_back(length);  // some are zero
        done += length;
      }
      auto split = start;
      split.step(1, best, cuts);
      const std::string difference = split.difference(whole);
      if (!difference.empty())
        FAIL(O::name << ' ' << P::name << ": " << difference);
    }
  });
}

TEST_CASE("update: zero parameters with zero gradients stay exactly zero") {
  for_each_combination([]<class O, class P, class G>() {
    const std::uint64_t count = 37;
    model_states<O, P, G> states(count, 1, 1, false);
    zero::master_type<P> master{};
    typename P::parameter_type parameter{};
    P::store(0.0F, parameter, master);
    for (std::size_t i = 0; i < count; ++i) {
      states.parameters[i] = parameter;
      states.masters[i] = master;
      states.gradients[i] = static_cast<G>(i % 2 == 0 ? 0.0F : -0.0F);
      for (auto& moments : states.moments)
        moments[i] = 0.0F;
    }
    const auto expected = states;
    for (std::uint64_t number = 1; number <= 5; ++number) {
      states.step(number, zero::kernels::cpu::instruction_set());
    }
    CHECK(states.difference(expected) == "");
  });
}

TEST_CASE("update: the gradient scale is applied before the optimizer, in fp32") {
  using states = model_states<zero::sgd, zero::fp32, float>;
  states scaled(100, 0, 3, false);
  states by_hand = scaled;
  for (std::size_t i = 0; i < 100; ++i)
    by_hand.gradients[i] = by_hand.gradients[i] * 0.1F;
  const auto scalars = zero::sgd{}.prepare(1, {.lr = 0.5, .weight_decay = 0.0});
  zero::kernels::update(zero::host_space{}, scaled.operands(0, 100), scalars, 0.1F);
  zero::kernels::update(zero::host_space{}, by_hand.operands(0, 100), scalars, 1.0F);
  CHECK(scaled.parameters.difference(by_hand.parameters) == buffer<float>::npos);
}

TEST_CASE("update: a path that this CPU lacks is an error") {
  if (zero::kernels::cpu::is_supported(isa::avx512))
    return;
  model_states<zero::sgd, zero::fp32, float> states(8, 0, 1, false);
  CHECK_THROWS_AS(states.step(1, isa::avx512), zero::usage_error);
}

}  // namespace
