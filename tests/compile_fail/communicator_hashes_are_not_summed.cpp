// SPDX-License-Identifier: Apache-2.0
// expect: no matching (member )?function for call to .*reduce_scatter
#include <cstdint>

#include <zero/backends/threads.hpp>

void misuse(zero::threads_communicator& comm, zero::range<const std::uint64_t, zero::partial> in,
            zero::range<std::uint64_t, zero::shard> out) {
  comm.reduce_scatter(in, out);
}
