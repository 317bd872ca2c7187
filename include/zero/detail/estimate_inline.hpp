// SPDX-License-Identifier: Apache-2.0
#pragma once

// Member functions of rank_estimate. Included at the end of estimate.hpp.

#include <zero/estimate.hpp>

namespace zero {

inline rank_estimate::range_size rank_estimate::size(unit_id unit, bool trainable,
                                                     bool partitioned) const {
  const partition whole = cut(unit, trainable);
  const interval part = partitioned ? whole.owned_by(request_.rank) : whole.whole();
  return {layout_.real_elements_in(unit, trainable, part), part.size()};
}

inline held_bytes rank_estimate::held() const {
  const stage_flags stage = request_.stage;
  const element_bytes bytes = request_.bytes;
  held_bytes held;
  const auto add = [&](memory_state state, range_size size, std::uint64_t bytes_per_element) {
    const std::uint64_t real = size.real * bytes_per_element;
    const std::uint64_t whole = round_up(size.padded * bytes_per_element, arena::alignment_bytes);
    held.add(state, real, whole - real);
  };
  for (std::uint32_t u = 0; u < layout_.unit_count(); ++u) {
    const unit_id unit{u};
    add(memory_state::parameters, size(unit, true, stage.partitions_parameters), bytes.parameter);
    add(memory_state::parameters, size(unit, false, stage.partitions_parameters), bytes.parameter);
    const bool sums_replace_gradients =
        stage.partitions_gradients && request_.mode == accumulation::reduce_every;
    if (!sums_replace_gradients) {
      add(memory_state::gradients, size(unit, true, stage.partitions_gradients), bytes.gradient);
    }
    const range_size owned = size(unit, true, stage.partitions_optimizer_state);
    if (bytes.master != 0) add(memory_state::optimizer, owned, bytes.master);
    for (std::uint64_t m = 0; m < bytes.moments; ++m) {
      add(memory_state::optimizer, owned, bytes.moment);
    }
    if (request_.mode != accumulation::none) {
      add(memory_state::accumulation, size(unit, true, request_.mode == accumulation::reduce_every),
          bytes.accumulation);
    }
  }
  held.transient = transient_bytes();
  return held;
}

inline std::uint64_t rank_estimate::gathered_bytes(unit_id unit) const {
  const std::uint64_t bytes = request_.bytes.parameter;
  return round_up(cut(unit, true).padded_elements() * bytes, arena::alignment_bytes) +
         round_up(cut(unit, false).padded_elements() * bytes, arena::alignment_bytes);
}

inline std::uint64_t rank_estimate::unreduced_bytes(unit_id unit) const {
  return round_up(cut(unit, true).padded_elements() * request_.bytes.gradient,
                  arena::alignment_bytes);
}

/// Units with several uses (or all of them) one by one, and the largest two neighbours of the rest.
template <class SlotBytes>
std::uint64_t rank_estimate::slots(bool all_own, SlotBytes slot_bytes) const {
  std::uint64_t own = 0;
  for (std::uint32_t u = 0; u < layout_.unit_count(); ++u) {
    if (all_own || !has_one_use(unit_id{u})) own += slot_bytes(unit_id{u});
  }
  std::uint64_t neighbours = 0;
  std::uint64_t previous = 0;
  for (const unit_id unit : schedule_) {
    if (all_own || !has_one_use(unit)) continue;
    const std::uint64_t bytes = slot_bytes(unit);
    neighbours = std::max(neighbours, previous + bytes);
    previous = bytes;
  }
  return own + neighbours;
}

inline std::uint64_t rank_estimate::transient_bytes() const {
  const stage_flags stage = request_.stage;
  const bool every = request_.mode == accumulation::reduce_every;
  std::uint64_t bytes = request_.control_bytes;
  if (stage.partitions_parameters && request_.ranks > 1) {
    bytes += slots(!stage.reshards_after_forward, [this](unit_id u) { return gathered_bytes(u); });
  }
  if (stage.partitions_gradients && (request_.ranks > 1 || every)) {
    bytes += slots(false, [this](unit_id u) { return unreduced_bytes(u); });
  }
  if (stage.partitions_gradients && request_.ranks > 1 && every) {
    bytes += round_up(largest_shard() * request_.bytes.gradient, arena::alignment_bytes);
  }
  if (request_.crosses_from_scratch()) {
    bytes += round_up(largest_shard() * request_.crossing_bytes(), arena::alignment_bytes);
  }
  return bytes;
}

inline std::uint64_t rank_estimate::largest_shard() const {
  std::uint64_t largest = 0;
  for (std::uint32_t u = 0; u < layout_.unit_count(); ++u) {
    largest = std::max(largest, cut(unit_id{u}, true).shard_elements);
  }
  return largest;
}

/// Every shard is reduce-scattered and all-gathered across the replicas: 2 Psi/S per rank.
inline void rank_estimate::add_crossing(moved_elements& moved, std::uint64_t reduces) const {
  const auto replicas = static_cast<std::uint64_t>(request_.replicas);
  const std::uint64_t bytes = request_.crossing_bytes() + request_.bytes.gradient;
  for (std::uint32_t u = 0; u < layout_.unit_count(); ++u) {
    const range_size shard = size(unit_id{u}, true, true);
    moved.crossing += 2 * reduces * shard.real;
    moved.padding += 2 * reduces * (shard.padded - shard.real);
    moved.wire_bytes += reduces * (replicas - 1) * (shard.padded / replicas) * bytes;
  }
}

inline moved_elements rank_estimate::moved(std::uint64_t micro_batches) const {
  moved_elements moved;
  if (request_.all_ranks() == 1) return moved;
  const volume_formula volume = volume_of(request_.stage, micro_batches, request_.mode);
  if (request_.replicas > 1) add_crossing(moved, volume.reduce_scatter_trainable);
  const std::uint64_t peers = static_cast<std::uint64_t>(request_.ranks) - 1;
  const bool gathers_gradients = !request_.stage.partitions_optimizer_state;
  const std::uint64_t gathered_element =
      gathers_gradients ? request_.bytes.gradient : request_.bytes.parameter;
  for (std::uint32_t u = 0; peers != 0 && u < layout_.unit_count(); ++u) {
    const auto count = [&](bool trainable, std::uint64_t reduces, std::uint64_t gathers) {
      const partition whole = cut(unit_id{u}, trainable);
      const std::uint64_t real = layout_.real_elements(unit_id{u}, trainable);
      moved.reduce_scatter += reduces * real;
      moved.all_gather += gathers * real;
      moved.padding += (reduces + gathers) * (whole.padded_elements() - real);
      moved.wire_bytes += peers * whole.shard_elements *
                          (reduces * request_.bytes.gradient + gathers * gathered_element);
    };
    count(true, volume.reduce_scatter_trainable, volume.all_gather_trainable);
    count(false, 0, volume.all_gather_frozen);
  }
  moved.all_reduce = plan::control_elements;
  moved.wire_bytes += static_cast<std::uint64_t>(request_.all_ranks() - 1) *
                      plan::control_elements * sizeof(double);
  return moved;
}

}  // namespace zero
