// SPDX-License-Identifier: Apache-2.0
// expect: zero: engine\.parameters\(tensor\) needs a stage that replicates parameters \(0 to 2\)
#include <zero/zero.hpp>

using engine_type =
    zero::engine<zero::stage3, zero::fp32, zero::threads_communicator, zero::adamw>;

auto read(engine_type& engine, zero::tensor_id tensor) { return engine.parameters(tensor); }
