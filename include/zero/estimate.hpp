// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <zero/layout.hpp>
#include <zero/model_state.hpp>
#include <zero/partition.hpp>
#include <zero/plan.hpp>

namespace zero {

/// Bytes of model states per rank as the paper writes them: replicated x Psi + partitioned x Psi/N.
///
/// ZeRO (arXiv 1910.02054), section 5: with 16-bit parameters and gradients and K = 12 bytes of
/// optimizer state this is 16 Psi; 4 Psi + 12 Psi/N; 2 Psi + 14 Psi/N; 16 Psi/N.
/// Units: bytes per parameter.
struct state_formula {
  std::uint64_t replicated = 0;
  std::uint64_t partitioned = 0;

  /// Bytes over all ranks together: exact for any N. Units: bytes.
  constexpr std::uint64_t all_ranks_bytes(std::uint64_t psi, std::uint64_t ranks) const noexcept {
    return ranks * replicated * psi + partitioned * psi;
  }
  /// Bytes on one rank, the exact quotient rounded to double. Units: bytes.
  constexpr double rank_bytes(std::uint64_t psi, std::uint64_t ranks) const noexcept {
    // Not by way of all ranks together: 10^15 parameters on 10^5 ranks would leave 64 bits.
    const std::uint64_t shared = partitioned * psi;
    return static_cast<double>(replicated * psi + shared / ranks) +
           static_cast<double>(shared % ranks) / static_cast<double>(ranks);
  }
  /// The largest Psi whose states fit into `budget_bytes` per rank. Units: parameters.
  constexpr std::uint64_t largest_model(std::uint64_t budget_bytes,
                                        std::uint64_t ranks) const noexcept {
    // psi * (replicated * N + partitioned) <= budget * N, without leaving 64 bits.
    const std::uint64_t weight = replicated * ranks + partitioned;
    return budget_bytes / weight * ranks + budget_bytes % weight * ranks / weight;
  }
};

/// The formula of a stage for element sizes taken from a Precision.
constexpr state_formula formula_of(stage_flags stage, element_bytes bytes) noexcept {
  state_formula formula;
  (stage.partitions_parameters ? formula.partitioned : formula.replicated) += bytes.parameter;
  (stage.partitions_gradients ? formula.partitioned : formula.replicated) += bytes.gradient;
  (stage.partitions_optimizer_state ? formula.partitioned : formula.replicated) +=
      bytes.optimizer();
  return formula;
}

template <Stage S, Precision P, Optimizer O>
constexpr state_formula formula_of() noexcept {
  return formula_of(flags_of<S>(), bytes_of<P, O>());
}

/// Elements that the reduce-scatters and all-gathers of one step move per rank (ZeRO, section 7):
/// 2 Psi at stages 0 to 2, 3 Psi at stage 3, 2 Psi at stage 3 with parameters kept gathered.
///
/// With k micro-batches the gradient part is Psi (reduce_last) or k Psi (reduce_every), and
/// stage 3 gathers in every micro-batch. Frozen parameters are gathered at stage 3 only.
/// Units: elements.
struct volume_formula {
  std::uint64_t reduce_scatter_trainable = 0;  ///< multiples of Psi_t
  std::uint64_t all_gather_trainable = 0;
  std::uint64_t all_gather_frozen = 0;  ///< multiples of Psi_f

  constexpr std::uint64_t elements(std::uint64_t psi_trainable,
                                   std::uint64_t psi_frozen = 0) const noexcept {
    return (reduce_scatter_trainable + all_gather_trainable) * psi_trainable +
           all_gather_frozen * psi_frozen;
  }
};

constexpr volume_formula volume_of(stage_flags stage, std::uint64_t micro_batches = 1,
                                   accumulation mode = accumulation::none) noexcept {
  const std::uint64_t reduces = mode == accumulation::reduce_every ? micro_batches : 1;
  if (!stage.partitions_parameters) return {reduces, 1, 0};
  const std::uint64_t gathers = (stage.reshards_after_forward ? 2 : 1) * micro_batches;
  return {reduces, gathers, gathers};
}

/// Predicts what one rank's ledger will hold, by the formulas, from sizes alone. It shares the
/// partition with the plan and nothing else.
class rank_estimate {
 public:
  rank_estimate(const model_layout& layout, const plan_request& request)
      : layout_(layout),
        request_(request),
        schedule_(layout.schedule()),
        uses_(layout.unit_count()) {
    for (const unit_id unit : schedule_) ++uses_[unit.value];
  }

  /// Units: bytes.
  held_bytes held() const;
  /// A step with `micro_batches` micro-batches. Units: elements; `wire_bytes` in bytes.
  moved_elements moved(std::uint64_t micro_batches = 1) const;

 private:
  struct range_size {
    std::uint64_t real = 0;
    std::uint64_t padded = 0;
  };
  partition cut(unit_id unit, bool trainable) const {
    return partition_for(request_, layout_.flat_elements(unit, trainable),
                         layout_.alignment_elements(), trainable);
  }
  range_size size(unit_id unit, bool trainable, bool partitioned) const;
  bool has_one_use(unit_id unit) const { return uses_[unit.value] == 1; }
  std::uint64_t gathered_bytes(unit_id unit) const;
  std::uint64_t unreduced_bytes(unit_id unit) const;
  std::uint64_t transient_bytes() const;
  std::uint64_t largest_shard() const;
  void add_crossing(moved_elements& moved, std::uint64_t reduces) const;
  template <class SlotBytes>
  std::uint64_t slots(bool all_own, SlotBytes slot_bytes) const;

  const model_layout& layout_;
  plan_request request_;
  std::vector<unit_id> schedule_;
  std::vector<std::uint64_t> uses_;  ///< of each unit in one forward traversal
};

}  // namespace zero

#include <zero/detail/estimate_inline.hpp>
