// SPDX-License-Identifier: Apache-2.0
// expect: norm_order
#include <zero/zero.hpp>

// Clipping is by the global L2 norm; another order is not a value that could be passed.
zero::step_arguments arguments{.lr = 0.1, .clip = 1.0, .norm_order = 1};
