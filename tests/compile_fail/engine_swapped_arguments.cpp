// SPDX-License-Identifier: Apache-2.0
// expect: zero::engine: the first argument is not a Stage
#include <zero/zero.hpp>

using wrong = zero::engine<zero::fp32, zero::stage2, zero::threads_communicator, zero::adamw>;
auto size = sizeof(wrong);
