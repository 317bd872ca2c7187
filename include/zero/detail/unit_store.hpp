// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <zero/layout.hpp>
#include <zero/memory.hpp>
#include <zero/partition.hpp>
#include <zero/plan.hpp>
#include <zero/precision.hpp>

namespace zero::detail {

/// A state of a unit where it lies: the positions of the unit's flat range that are held here.
/// Replicated states hold all of them, partitioned ones this rank's shard; nothing else differs.
template <class T>
struct placed {
  T* data = nullptr;
  interval held;

  T* at(std::uint64_t position) const noexcept { return data + (position - held.begin); }
};

/// The part of a tensor that lies in some interval of its unit's flat range.
struct segment {
  tensor_id tensor;
  group_id group;
  std::uint64_t begin = 0;  ///< position in the flat range
  std::uint64_t count = 0;
  std::uint64_t first_in_tensor = 0;  ///< index of the first element inside the tensor
};

/// All states of one unit on this rank.
template <Precision P, std::size_t Moments>
struct unit_store {
  using parameter_type = typename P::parameter_type;
  using gradient_type = typename P::gradient_type;

  partition trainable;
  partition frozen;
  std::uint64_t trainable_padding = 0;
  std::uint64_t shard_padding = 0;  ///< of the part of trainable that this rank owns
  std::uint64_t frozen_padding = 0;

  placed<parameter_type> parameters;
  placed<parameter_type> frozen_parameters;
  placed<parameter_type> gathered;  ///< where all of the unit can be read while it is open
  placed<parameter_type> gathered_frozen;
  placed<gradient_type> gradients;  ///< reduced
  placed<gradient_type> window;     ///< what the user writes: all positions, unreduced
  placed<master_type<P>> masters;
  std::array<placed<typename P::moment_type>, Moments> moments;
  placed<typename P::accumulation_type> sums;

  std::vector<segment> shard_segments;    ///< trainable tensors inside this rank's shard
  std::vector<segment> updated_segments;  ///< those whose optimizer state is held here
  std::vector<segment> frozen_segments;   ///< frozen tensors inside this rank's shard
  std::vector<interval> gaps;             ///< padding of the whole trainable range
};

/// The tensors of a unit cut to an interval of its flat range, in order of position.
inline std::vector<segment> segments_in(const model_layout& layout, unit_id unit, bool trainable,
                                        interval part) {
  std::vector<segment> segments;
  for (const tensor_id id : layout.tensors(unit)) {
    const tensor_info info = layout.info(id);
    if (layout.is_tied(id) || info.trainable != trainable) continue;
    const std::uint64_t offset = layout.offset(id);
    const interval common = intersect({offset, offset + info.elements}, part);
    if (common.empty()) continue;
    segments.push_back({id, info.group, common.begin, common.size(), common.begin - offset});
  }
  return segments;
}

/// What no tensor covers, between and behind the tensors of a padded range.
inline std::vector<interval> gaps_between(const std::vector<segment>& tensors, interval whole) {
  std::vector<interval> gaps;
  std::uint64_t position = whole.begin;
  for (const segment& tensor : tensors) {
    if (tensor.begin > position) gaps.push_back({position, tensor.begin});
    position = tensor.begin + tensor.count;
  }
  if (whole.end > position) gaps.push_back({position, whole.end});
  return gaps;
}

/// Gives typed addresses to everything that a plan laid out in an arena.
template <Precision P, std::size_t Moments>
class store_builder {
 public:
  using store = unit_store<P, Moments>;

  store_builder(const model_layout& layout, const plan& plan, std::byte* base)
      : layout_(layout), plan_(plan), base_(base) {}

  std::vector<store> build() const {
    std::vector<store> stores;
    stores.reserve(layout_.unit_count());
    for (std::uint32_t u = 0; u < layout_.unit_count(); ++u) stores.push_back(one(unit_id{u}));
    return stores;
  }

 private:
  store one(unit_id unit) const {
    const unit_plan& from = plan_.units[unit.value];
    const stage_flags stage = plan_.request.stage;
    store to;
    to.trainable = from.trainable;
    to.frozen = from.frozen;
    to.trainable_padding = from.trainable.padded_elements() - layout_.real_elements(unit, true);
    to.shard_padding =
        from.trainable.shard_elements -
        layout_.real_elements_in(unit, true, from.trainable.owned_by(plan_.request.rank));
    to.frozen_padding = from.frozen.padded_elements() - layout_.real_elements(unit, false);
    const interval shard = from.trainable.owned_by(plan_.request.rank);
    const interval whole = from.trainable.whole();
    const interval frozen_shard = from.frozen.owned_by(plan_.request.rank);
    const interval optimizer = stage.partitions_optimizer_state ? shard : whole;

    place(to.parameters, from.parameters, stage.partitions_parameters ? shard : whole);
    place(to.frozen_parameters, from.frozen_parameters,
          stage.partitions_parameters ? frozen_shard : from.frozen.whole());
    place(to.gradients, from.gradients, stage.partitions_gradients ? shard : whole);
    place(to.masters, from.master, optimizer);
    for (std::size_t m = 0; m < Moments; ++m) place(to.moments[m], from.moments[m], optimizer);
    place(to.sums, from.accumulation,
          plan_.request.mode == accumulation::reduce_every ? shard : whole);

    // Without a slot the state itself is the whole: replicated, or the only rank's shard.
    to.gathered = to.parameters;
    to.gathered_frozen = to.frozen_parameters;
    if (plan_.gathers_into_slots()) {
      place(to.gathered, from.gathered_trainable, whole);
      place(to.gathered_frozen, from.gathered_frozen, from.frozen.whole());
    }
    to.window = to.gradients;
    if (plan_.reduces_from_slots()) place(to.window, from.unreduced_gradients, whole);

    to.shard_segments = segments_in(layout_, unit, true, shard);
    to.updated_segments = segments_in(layout_, unit, true, optimizer);
    to.frozen_segments = segments_in(layout_, unit, false, frozen_shard);
    to.gaps = gaps_between(segments_in(layout_, unit, true, whole), whole);
    return to;
  }

  template <class T>
  void place(placed<T>& state, std::uint64_t offset, interval held) const {
    if (offset == unit_plan::absent) return;
    state = {reinterpret_cast<T*>(base_ + offset), held};
  }

  const model_layout& layout_;
  const plan& plan_;
  std::byte* base_;
};

}  // namespace zero::detail
