// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "contender.hpp"

namespace collectives_bench {

/// What a collective over shared memory cannot beat: a memcpy that touches as many bytes as the
/// rank has to. Of a full range of B bytes, a reduce-scatter reads N shards and writes one, and an
/// all-gather in place reads and writes N - 1 shards; a memcpy of b bytes touches 2 b.
class copy_contender final : public contender {
 public:
  /// `other` has room for as many bytes as `full`.
  copy_contender(rank_place place, rank_memory memory, std::byte* other)
      : contender(place, memory), other_(other) {}

  void run(const workload& load) override;
  const std::byte* result(const workload&) const override { return nullptr; }

 private:
  std::byte* other_;
};

}  // namespace collectives_bench
