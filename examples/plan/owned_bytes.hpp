// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include <zero/layout.hpp>
#include <zero/partition.hpp>
#include <zero/plan.hpp>

namespace planning {

struct extremes {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  friend constexpr bool operator==(extremes, extremes) = default;
};

/// Bytes per real element of what is partitioned; 0 leaves a kind of tensor out.
struct weights {
  std::uint64_t trainable = 0;
  std::uint64_t frozen = 0;
};

/// How many bytes of real elements each rank owns when the layout's ranges are partitioned.
///
/// Kept as the ranks at which the number changes: a tensor adds at most four of them, so the work
/// depends on the number of tensors and not on the number of ranks.
class owned_bytes {
 public:
  owned_bytes(const zero::model_layout& layout, const zero::plan_request& request,
              weights bytes_per_element)
      : ranks_(static_cast<std::uint64_t>(request.ranks)) {
    for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
      const zero::tensor_id id{t};
      const zero::tensor_info info = layout.info(id);
      if (layout.is_tied(id) || info.elements == 0) continue;
      const std::uint64_t flat = layout.flat_elements(info.unit, info.trainable);
      const std::uint64_t begin = layout.offset(id);
      add({begin, begin + info.elements},
          zero::partition_for(request, flat, layout.alignment_elements(), info.trainable)
              .shard_elements,
          info.trainable ? bytes_per_element.trainable : bytes_per_element.frozen);
    }
  }

  /// The smallest and the largest number over all ranks.
  extremes over_ranks() const {
    extremes result{~std::uint64_t{0}, 0};
    std::uint64_t owned = 0;
    std::uint64_t next = 0;  // ranks before it are accounted for
    const auto account = [&](std::uint64_t until) {
      if (until == next) return;
      result.least = std::min(result.least, owned);
      result.most = std::max(result.most, owned);
      next = until;
    };
    for (const auto& [rank, change] : changes_) {
      account(rank);
      owned += change;
    }
    account(ranks_);
    return result;
  }

 private:
  /// Spreads a tensor over the shards that it meets: a head, whole shards, a tail.
  void add(zero::interval tensor, std::uint64_t shard, std::uint64_t weight) {
    const std::uint64_t first = tensor.begin / shard;
    const std::uint64_t last = (tensor.end - 1) / shard;
    if (first == last) {
      add_run(first, last + 1, tensor.size() * weight);
      return;
    }
    add_run(first, first + 1, ((first + 1) * shard - tensor.begin) * weight);
    add_run(first + 1, last, shard * weight);
    add_run(last, last + 1, (tensor.end - last * shard) * weight);
  }

  /// Changes are added modulo 2^64, so a decrease is an addition too.
  void add_run(std::uint64_t begin, std::uint64_t end, std::uint64_t bytes) {
    if (begin == end || bytes == 0) return;
    changes_[begin] += bytes;
    changes_[end] -= bytes;
  }

  std::uint64_t ranks_;
  std::map<std::uint64_t, std::uint64_t> changes_;
};

}  // namespace planning
