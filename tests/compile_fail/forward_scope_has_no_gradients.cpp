// SPDX-License-Identifier: Apache-2.0
// expect: gradients
#include <zero/zero.hpp>

using engine_type =
    zero::engine<zero::stage2, zero::fp32, zero::threads_communicator, zero::adamw>;

auto train(engine_type::pass& pass, zero::unit_id unit, zero::tensor_id tensor) {
  return pass.forward(unit).gradients(tensor);
}
