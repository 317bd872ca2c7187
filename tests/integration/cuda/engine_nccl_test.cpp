// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 300
// links: zero_simulated_device zero_test_engines
#include <catch2/catch.hpp>

#include "integration/cuda/cuda_agreement.hpp"
#include "integration/cuda/nccl_training.hpp"

using namespace zero;
using namespace zero::test;

TEST_CASE("engines over NCCL end with the bits of threads where NCCL sums in tree order") {
  check_all_stages<nccl_ranks, bf16_mixed>(precision_kind::bf16_mixed);
}
