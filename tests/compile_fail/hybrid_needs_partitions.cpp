// SPDX-License-Identifier: Apache-2.0
// expect: zero::engine: zero::hybrid shards inside groups, and stage0 shards nothing
#include <zero/backends/hybrid.hpp>
#include <zero/zero.hpp>

using grouped = zero::hybrid<zero::threads_communicator>;

zero::engine<zero::stage0, zero::fp32, grouped, zero::adamw>* engine = nullptr;
auto size = sizeof(*engine);
