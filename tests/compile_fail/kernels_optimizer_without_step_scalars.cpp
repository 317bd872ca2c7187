// SPDX-License-Identifier: Apache-2.0
// expect: zero::kernels::instantiate: the optimizer has no step_scalars
#include <array>
#include <cstdint>

#include <zero/kernels/cuda/control_body.hpp>

struct host_only : zero::sgd {
  std::array<double, scalar_count> prepare(std::uint64_t step,
                                           const zero::update_arguments& arguments) const {
    return zero::sgd::prepare(step, arguments);
  }
  void step_scalars() const;
};

auto size = sizeof(zero::kernels::cuda::advance_body<host_only, zero::fp32>);
