// SPDX-License-Identifier: Apache-2.0
// expect: deleted|implicitly
#include <zero/zero.hpp>

using engine_type =
    zero::engine<zero::stage2, zero::fp32, zero::threads_communicator, zero::adamw>;

auto twice(engine_type::pass& pass, zero::unit_id unit) {
  const auto scope = pass.forward(unit);
  auto copy = scope;
  return copy;
}
