// SPDX-License-Identifier: Apache-2.0
// expect: zero::kernels::instantiate: the optimizer's update takes std::array
#include <array>

#include <zero/kernels/cuda/update_body.hpp>

struct host_only : zero::sgd {
  template <class Ops, class V>
  static void update(V& parameter, std::array<V, 1>& moments, const V& gradient,
                     const std::array<V, 3>& scalars) {
    zero::sgd::update<Ops>(parameter, moments, gradient, scalars);
  }
};

auto size = sizeof(zero::kernels::cuda::update_body<host_only, zero::fp32, float>);
