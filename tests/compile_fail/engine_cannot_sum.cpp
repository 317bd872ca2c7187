// SPDX-License-Identifier: Apache-2.0
// expect: zero::engine: the communicator cannot reduce-scatter
#include <zero/zero.hpp>

// Everything but the sum.
class gather_only : public zero::threads_communicator {
 public:
  using zero::threads_communicator::threads_communicator;
  void reduce_scatter() = delete;
};

using wrong = zero::engine<zero::stage2, zero::fp32, gather_only, zero::adamw>;
auto size = sizeof(wrong);
