// SPDX-License-Identifier: Apache-2.0
// expect: zero::engine: the fourth argument is not an Optimizer .*LAMB
#include <zero/zero.hpp>

struct lamb {
  double trust_ratio = 1;
};

using wrong = zero::engine<zero::stage2, zero::fp32, zero::threads_communicator, lamb>;
auto size = sizeof(wrong);
