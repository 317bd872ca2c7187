// SPDX-License-Identifier: Apache-2.0
// expect: zero::engine: the first argument is not a Stage
#include <zero/zero.hpp>

struct almost_a_stage {
  static constexpr bool partitions_optimizer_state = true;
};

zero::engine<almost_a_stage, zero::fp32, zero::threads_communicator, zero::adamw>* engine = nullptr;
auto size = sizeof(*engine);
