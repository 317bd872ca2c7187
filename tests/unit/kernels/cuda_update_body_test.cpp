// SPDX-License-Identifier: Apache-2.0
// labels: kernel_host
// timeout: 120
#include <zero/kernels/cuda/update_body.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "cuda_cases.hpp"
#include "support/cuda_bodies.hpp"

namespace {

using namespace kernel_tests;
namespace cuda = zero::kernels::cuda;

constexpr float gradient_scale = 0.75F;

/// Runs the body on `states` as `threads` threads.
template <std::size_t Elements, class O, class P, class G>
void run_body(device_states<O, P, G>& states, std::uint64_t threads, bool is_skipped = false) {
  using compute_type = typename P::compute_type;
  zero::kernels::control_block control;
  control.gradient_scale = gradient_scale;
  control.found_inf = is_skipped ? 1 : 0;
  const auto prepared = O{}.prepare(3, {.lr = 0.01, .weight_decay = 0.1});
  std::array<compute_type, O::scalar_count> scalars;
  for (std::size_t k = 0; k < scalars.size(); ++k) {
    scalars[k] = static_cast<compute_type>(prepared[k]);
  }
  const cuda::update_body<O, P, G, Elements> body(states.operands(), &control, scalars.data());
  cuda_bodies::run_all_threads(body, threads);
}

template <std::size_t Elements, class O, class P, class G>
void require_host_bits(std::uint64_t count, std::size_t misaligned) {
  device_states<O, P, G> expected(count, misaligned);
  auto actual = expected;
  const auto scalars = O{}.prepare(3, {.lr = 0.01, .weight_decay = 0.1});
  zero::kernels::update(zero::host_space{}, expected.operands(), scalars, gradient_scale);
  const std::uint64_t threads = cuda_bodies::threads_of(count);
  run_body<Elements>(actual, threads);
  const std::string difference = actual.difference(expected);
  if (!difference.empty()) {
    FAIL(O::name << ' ' << P::name << ", " << count << " elements in packs of " << Elements << ", "
                 << threads << " threads, array " << misaligned << " misaligned: " << difference);
  }
}

TEST_CASE("cuda update body: every policy gives the host's bits at every size") {
  const std::vector<std::uint64_t> sizes = cuda_bodies::sizes();
  for_each_combination([&]<class O, class P, class G>() {
    for (const std::uint64_t count : sizes) {
      require_host_bits<8, O, P, G>(count, device_states<O, P, G>::none);
    }
  });
}

TEST_CASE("cuda update body: packs of four give the host's bits") {
  for_each_combination([]<class O, class P, class G>() {
    for (const std::uint64_t count : {1U, 3U, 4U, 5U, 17U, 64U, 1003U}) {
      require_host_bits<4, O, P, G>(count, device_states<O, P, G>::none);
    }
  });
}

TEST_CASE("cuda update body: one array that is not aligned changes nothing but the path") {
  for_each_combination([]<class O, class P, class G>() {
    for (std::size_t misaligned = 0; misaligned < 3 + O::moments_per_element; ++misaligned) {
      for (const std::uint64_t count : {1U, 8U, 67U, 1003U}) {
        require_host_bits<8, O, P, G>(count, misaligned);
      }
    }
  });
}

TEST_CASE("cuda update body: a skipped step changes no byte") {
  for_each_combination([]<class O, class P, class G>() {
    device_states<O, P, G> states(1003, device_states<O, P, G>::none);
    const auto before = states;
    run_body<8>(states, 33, true);
    CHECK(states.difference(before) == "");
  });
}

TEST_CASE("cuda update body: the packs of all threads cover every element once") {
  for (std::uint64_t count = 0; count <= 4096; ++count) {
    const std::uint64_t threads = cuda_bodies::threads_of(count);
    for (const bool in_packs : {true, false}) {
      std::vector<unsigned char> visits(count, 0);
      for (std::uint64_t thread = 0; thread < threads; ++thread) {
        cuda::for_each_pack<8>(thread, threads, count, in_packs,
                               [&](std::uint64_t first, auto length) {
                                 for (std::uint64_t i = 0; i < length(); ++i) ++visits[first + i];
                               });
      }
      std::uint64_t wrong = 0;
      for (const unsigned char visit : visits) wrong += visit == 1 ? 0U : 1U;
      if (wrong != 0) FAIL(wrong << " of " << count << " elements, " << threads << " threads");
    }
  }
}

}  // namespace
