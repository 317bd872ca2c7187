// SPDX-License-Identifier: Apache-2.0
// A reduced shard passed where unreduced contributions are wanted.
// expect: no matching (member )?function for call to .*reduce_scatter
#include <zero/backends/threads.hpp>

void misuse(zero::threads_communicator& comm, zero::range<const float, zero::shard> in,
            zero::range<float, zero::shard> out) {
  comm.reduce_scatter(in, out);
}
