// SPDX-License-Identifier: Apache-2.0
// expect: zero::engine: the third argument is not a Communicator
#include <zero/zero.hpp>

struct mpi_like {
  int rank() const;
  int size() const;
};

using wrong = zero::engine<zero::stage2, zero::fp32, mpi_like, zero::adamw>;
auto size = sizeof(wrong);
