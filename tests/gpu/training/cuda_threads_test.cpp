// SPDX-License-Identifier: Apache-2.0
// timeout: 300
// links: zero_gpu_listener zero_gpu_kernels zero_test_engines
#include <catch2/catch.hpp>

#include <string>

#include "gpu/training/device_ranks.hpp"

using namespace zero;
using namespace zero::test;

namespace {

/// Trains on 2, 4 and 8 ranks that share the device; what differs from threads of the host.
template <class S, class P>
std::string difference_from_threads(stage_kind stage, precision_kind precision) {
  const engine_choice choice{.stage = stage, .precision = precision};
  const model_layout layout = device_layout();
  const training_options options{
      .steps = 10, .arguments = {.lr = 0.01, .clip = 0.5}, .gradient = real_gradient};
  std::string text;
  for (const int ranks : {2, 4, 8}) {
    const trained_state expected = train(choice, ranks, layout, options);
    const std::string difference =
        train_on<device_ranks, S, P>(ranks, layout, options).difference_from(expected);
    if (difference.empty()) continue;
    text += name_of(choice) + ", " + std::to_string(ranks) + " ranks: " + difference + "; ";
  }
  return text;
}

}  // namespace

TEST_CASE("gpu training: ranks of cuda_threads end with the bits of threads, bf16_mixed") {
  using P = bf16_mixed;
  constexpr auto precision = precision_kind::bf16_mixed;
  CHECK(difference_from_threads<stage3, P>(stage_kind::stage3, precision) == "");
#if defined(ZERO_TEST_GPU_ALL)
  CHECK(difference_from_threads<stage0, P>(stage_kind::stage0, precision) == "");
  CHECK(difference_from_threads<stage1, P>(stage_kind::stage1, precision) == "");
  CHECK(difference_from_threads<stage2, P>(stage_kind::stage2, precision) == "");
  CHECK(difference_from_threads<stage3_keep_gathered, P>(stage_kind::stage3_keep_gathered,
                                                         precision) == "");
#endif
}

#if defined(ZERO_TEST_GPU_ALL)
TEST_CASE("gpu training: ranks of cuda_threads end with the bits of threads, fp32") {
  using P = fp32;
  constexpr auto precision = precision_kind::fp32;
  CHECK(difference_from_threads<stage0, P>(stage_kind::stage0, precision) == "");
  CHECK(difference_from_threads<stage1, P>(stage_kind::stage1, precision) == "");
  CHECK(difference_from_threads<stage2, P>(stage_kind::stage2, precision) == "");
  CHECK(difference_from_threads<stage3, P>(stage_kind::stage3, precision) == "");
  CHECK(difference_from_threads<stage3_keep_gathered, P>(stage_kind::stage3_keep_gathered,
                                                         precision) == "");
}
#endif
