// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device slow
// timeout: 300
// links: zero_simulated_device zero_test_engines
#include <catch2/catch.hpp>

#include <cstdint>
#include <set>

#include "integration/cuda/dropped_waits.hpp"
#include "integration/cuda/nccl_training.hpp"

using namespace zero;
using namespace zero::test;

namespace {

/// Stage 0: between a unit's reduce-scatter and its all-gather (0 to 3), as the communicator's
/// stream runs them in order, which not every communicator promises; and behind the last all-gather
/// (4), as the all-reduce, whose wait follows before the update, runs behind it in the same stream.
/// Gathers always matter: while NCCL runs one, anything may lie in its output.
std::set<std::uint64_t> waits_without_effect(stage_kind stage) {
  if (stage == stage_kind::stage0) return {0, 1, 2, 3, 4};
  return {};
}

template <class S>
void require_waits_of(stage_kind stage) {
  zero::test::require_waits_of<idle_nccl_ranks, S>(stage, full_counts() ? 3 : 2,
                                                   &waits_without_effect);
}

}  // namespace

TEST_CASE("every wait of a step over NCCL matters: stage 0") {
  require_waits_of<stage0>(stage_kind::stage0);
}
TEST_CASE("every wait of a step over NCCL matters: stage 1") {
  require_waits_of<stage1>(stage_kind::stage1);
}
TEST_CASE("every wait of a step over NCCL matters: stage 2") {
  require_waits_of<stage2>(stage_kind::stage2);
}
TEST_CASE("every wait of a step over NCCL matters: stage 3") {
  require_waits_of<stage3>(stage_kind::stage3);
}
TEST_CASE("every wait of a step over NCCL matters: stage 3 with parameters kept gathered") {
  require_waits_of<stage3_keep_gathered>(stage_kind::stage3_keep_gathered);
}
