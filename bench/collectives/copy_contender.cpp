// SPDX-License-Identifier: Apache-2.0
#include "copy_contender.hpp"

#include <cstring>

namespace collectives_bench {

void copy_contender::run(const workload& load) {
  const auto ranks = static_cast<std::uint64_t>(place().size);
  const std::uint64_t shard_bytes = load.bytes() / ranks;
  const std::uint64_t touched = load.what == operation::reduce_scatter
                                    ? (ranks + 1) * shard_bytes
                                    : 2 * (ranks - 1) * shard_bytes;
  std::memcpy(other_, memory().full, static_cast<std::size_t>(touched / 2));
}

}  // namespace collectives_bench
