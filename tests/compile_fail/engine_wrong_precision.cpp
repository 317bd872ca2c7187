// SPDX-License-Identifier: Apache-2.0
// expect: zero::engine: the second argument is not a Precision
#include <zero/zero.hpp>

using wrong = zero::engine<zero::stage2, float, zero::threads_communicator, zero::adamw>;
auto size = sizeof(wrong);
