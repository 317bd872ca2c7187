// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device slow
// timeout: 300
// links: zero_simulated_device zero_test_engines
#include <catch2/catch.hpp>

#include "integration/cuda/cuda_agreement.hpp"

using namespace zero;
using namespace zero::test;

TEST_CASE("fp16 engines on devices end with the bits of threads under every seed") {
  check_all_stages<cuda_threads_ranks, fp16_mixed>(precision_kind::fp16_mixed);
}
