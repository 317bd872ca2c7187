// SPDX-License-Identifier: Apache-2.0
// expect: zero: pass\.gradients\(tensor\) needs a stage that replicates gradients \(0 or 1\)
#include <zero/zero.hpp>

using engine_type =
    zero::engine<zero::stage2, zero::fp32, zero::threads_communicator, zero::adamw>;

auto write(engine_type::pass& pass, zero::tensor_id tensor) { return pass.gradients(tensor); }
