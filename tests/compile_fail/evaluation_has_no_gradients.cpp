// SPDX-License-Identifier: Apache-2.0
// expect: backward
#include <zero/zero.hpp>

using engine_type =
    zero::engine<zero::stage2, zero::fp32, zero::threads_communicator, zero::adamw>;

auto train(engine_type::evaluation& pass, zero::unit_id unit) { return pass.backward(unit); }
