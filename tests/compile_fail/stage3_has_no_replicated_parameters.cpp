// SPDX-License-Identifier: Apache-2.0
// expect: parameters|constraints|no matching
#include <zero/zero.hpp>

using engine_type =
    zero::engine<zero::stage3, zero::fp32, zero::threads_communicator, zero::adamw>;

auto read(engine_type& engine, zero::tensor_id tensor) { return engine.parameters(tensor); }
