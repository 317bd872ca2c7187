// SPDX-License-Identifier: Apache-2.0
#pragma once

// make_plan and step_collectives. Included at the end of plan.hpp.

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <zero/plan.hpp>

namespace zero {

namespace detail {

/// Lays the buffers of a plan one after the other.
class plan_builder {
 public:
  plan_builder(const model_layout& layout, const plan_request& request) : layout_(layout) {
    plan_.request = request;
    plan_.schedule = layout.schedule();
  }

  plan build() {
    add_units();
    add_states();
    if (plan_.gathers_into_slots()) add_parameter_slots();
    if (plan_.reduces_from_slots()) add_gradient_slots();
    if (!plan_.keeps_gradients() && plan_.request.ranks > 1) add_scratch();
    if (request().crosses_from_scratch()) add_crossing();
    plan_.control = append(planned_buffer::purpose::control, memory_state::transient, {}, 0,
                           request().control_bytes, 0);
    return std::move(plan_);
  }

 private:
  using purpose = planned_buffer::purpose;

  const plan_request& request() const noexcept { return plan_.request; }
  unit_plan& at(unit_id unit) { return plan_.units[unit.value]; }

  void add_units() {
    for (std::uint32_t u = 0; u < layout_.unit_count(); ++u) {
      unit_plan unit;
      unit.trainable = cut(unit_id{u}, true);
      unit.frozen = cut(unit_id{u}, false);
      unit.uses = 0;
      plan_.units.push_back(std::move(unit));
    }
    for (const unit_id unit : plan_.schedule) ++at(unit).uses;
    std::uint64_t place = 0;
    for (const unit_id unit : plan_.schedule) {
      if (at(unit).uses == 1) at(unit).slot_parity = place++ % 2;
    }
  }

  partition cut(unit_id unit, bool trainable) const {
    return partition_for(request(), layout_.flat_elements(unit, trainable),
                         layout_.alignment_elements(), trainable);
  }

  /// State by state, so that each state is one contiguous run of the arena.
  void add_states() {
    const stage_flags stage = request().stage;
    const element_bytes bytes = request().bytes;
    each_unit([&](unit_id unit, unit_plan& u) {
      u.parameters = state(purpose::parameters, memory_state::parameters, unit, true,
                           stage.partitions_parameters, bytes.parameter);
      u.frozen_parameters = state(purpose::frozen_parameters, memory_state::parameters, unit, false,
                                  stage.partitions_parameters, bytes.parameter);
    });
    if (plan_.keeps_gradients()) {
      each_unit([&](unit_id unit, unit_plan& u) {
        u.gradients = state(purpose::gradients, memory_state::gradients, unit, true,
                            stage.partitions_gradients, bytes.gradient);
      });
    }
    if (bytes.master != 0) {
      each_unit([&](unit_id unit, unit_plan& u) {
        u.master = state(purpose::master, memory_state::optimizer, unit, true,
                         stage.partitions_optimizer_state, bytes.master);
      });
    }
    for (std::uint64_t m = 0; m < bytes.moments; ++m) {
      each_unit([&](unit_id unit, unit_plan& u) {
        u.moments.push_back(state(purpose::moment, memory_state::optimizer, unit, true,
                                  stage.partitions_optimizer_state, bytes.moment, m));
      });
    }
    if (request().mode != accumulation::none) {
      each_unit([&](unit_id unit, unit_plan& u) {
        u.accumulation = state(purpose::accumulation, memory_state::accumulation, unit, true,
                               request().mode == accumulation::reduce_every, bytes.accumulation);
      });
    }
  }

  template <class Function>
  void each_unit(Function function) {
    for (std::uint32_t u = 0; u < layout_.unit_count(); ++u) function(unit_id{u}, at(unit_id{u}));
  }

  /// One state of a unit: this rank's shard of it, or all of it.
  std::uint64_t state(purpose what, memory_state kind, unit_id unit, bool trainable,
                      bool partitioned, std::uint64_t bytes_per_element, std::uint64_t index = 0) {
    const partition& cut = trainable ? at(unit).trainable : at(unit).frozen;
    const interval part = partitioned ? cut.owned_by(request().rank) : cut.whole();
    const std::uint64_t real = layout_.real_elements_in(unit, trainable, part);
    return append(what, kind, unit, index, real * bytes_per_element,
                  (part.size() - real) * bytes_per_element);
  }

  void add_parameter_slots() {
    const bool keeps = !request().stage.reshards_after_forward;
    const std::uint64_t bytes = request().bytes.parameter;
    const auto slot_bytes = [&](const unit_plan& u) {
      return aligned(u.trainable.padded_elements() * bytes) +
             aligned(u.frozen.padded_elements() * bytes);
    };
    const auto place = [&](unit_plan& u, std::uint64_t offset) {
      u.gathered_trainable = offset;
      u.gathered_frozen = offset + aligned(u.trainable.padded_elements() * bytes);
    };
    add_slots(purpose::gathered_parameters, purpose::shared_parameters, keeps, slot_bytes, place,
              &unit_plan::shares_parameter_region);
  }

  void add_gradient_slots() {
    const std::uint64_t bytes = request().bytes.gradient;
    const auto slot_bytes = [&](const unit_plan& u) {
      return aligned(u.trainable.padded_elements() * bytes);
    };
    const auto place = [](unit_plan& u, std::uint64_t offset) { u.unreduced_gradients = offset; };
    add_slots(purpose::unreduced_gradients, purpose::shared_gradients, false, slot_bytes, place,
              &unit_plan::shares_gradient_region);
  }

  template <class SlotBytes, class Place>
  void add_slots(purpose own, purpose shared, bool all_own, SlotBytes slot_bytes, Place place,
                 bool unit_plan::*shares) {
    std::vector<unit_id> sharing;
    each_unit([&](unit_id unit, unit_plan& u) {
      if (!all_own && u.uses == 1) return;
      place(u, append(own, memory_state::transient, unit, 0, slot_bytes(u), 0));
    });
    for (const unit_id unit : plan_.schedule) {
      if (!all_own && at(unit).uses == 1) sharing.push_back(unit);
    }
    if (sharing.empty()) return;
    // The most that two neighbours of the schedule need at the same time.
    std::uint64_t region = slot_bytes(at(sharing.front()));
    for (std::size_t i = 1; i < sharing.size(); ++i) {
      region = std::max(region, slot_bytes(at(sharing[i - 1])) + slot_bytes(at(sharing[i])));
    }
    const std::uint64_t base = append(shared, memory_state::transient, {}, 0, region, 0);
    for (const unit_id unit : sharing) {
      unit_plan& u = at(unit);
      u.*shares = true;
      place(u, u.slot_parity == 0 ? base : base + region - slot_bytes(u));
    }
  }

  /// Room for the reduced shard of one micro-batch before it is added to the accumulated one.
  void add_scratch() {
    plan_.scratch_shard = append(purpose::scratch_shard, memory_state::transient, {}, 0,
                                 largest_shard() * request().bytes.gradient, 0);
  }

  /// Room for the sums of one group, not yet rounded.
  void add_crossing() {
    plan_.crossing_shard = append(purpose::crossing_shard, memory_state::transient, {}, 0,
                                  largest_shard() * request().crossing_bytes(), 0);
  }

  std::uint64_t largest_shard() const noexcept {
    std::uint64_t largest = 0;
    for (const unit_plan& u : plan_.units) {
      largest = std::max(largest, u.trainable.shard_elements);
    }
    return largest;
  }

  static std::uint64_t aligned(std::uint64_t bytes) noexcept {
    return round_up(bytes, arena::alignment_bytes);
  }

  std::uint64_t append(purpose what, memory_state kind, std::optional<unit_id> unit,
                       std::uint64_t index, std::uint64_t real, std::uint64_t padding) {
    const std::uint64_t offset = plan_.arena_bytes;
    // Buffers start aligned; the slack of small layout alignments counts as padding.
    const std::uint64_t pad = aligned(real + padding) - real;
    plan_.buffers.push_back({what, kind, unit, index, offset, real, pad});
    plan_.held.add(kind, real, pad);
    plan_.arena_bytes += real + pad;
    return offset;
  }

  const model_layout& layout_;
  plan plan_;
};

/// Lists the collectives of a step.
class step_lister {
 public:
  step_lister(const model_layout& layout, const plan& plan) : layout_(layout), plan_(plan) {}

  std::vector<planned_collective> list(std::uint64_t micro_batches) {
    if (plan_.request.all_ranks() == 1) return {};
    const bool every = plan_.request.mode == accumulation::reduce_every;
    for (std::uint64_t i = 0; i < micro_batches; ++i) {
      traverse(planned_collective::phase::forward, false);
      traverse(planned_collective::phase::backward, every || i + 1 == micro_batches);
    }
    if (plan_.request.stage.partitions_optimizer_state &&
        !plan_.request.stage.partitions_parameters) {
      for (std::uint32_t u = 0; u < layout_.unit_count(); ++u) {
        gather(unit_id{u}, true, planned_collective::phase::update, plan_.request.bytes.parameter);
      }
    }
    return std::move(list_);
  }

 private:
  using operation = planned_collective::operation;
  using phase = planned_collective::phase;

  void traverse(phase when, bool reduces) {
    order_ = plan_.schedule;
    gathered_.assign(layout_.unit_count(), !gathers(when));
    std::vector<unit_id> uses(layout_.uses().begin(), layout_.uses().end());
    if (when == phase::backward) {
      std::reverse(order_.begin(), order_.end());
      std::reverse(uses.begin(), uses.end());
    }
    std::size_t position = 0;
    for (const unit_id use : uses) {
      // A use opens the units its tensors are tied to along with its own, and closes all of them.
      const std::size_t end = position + layout_.tied_units(use).size() + 1;
      for (std::size_t p = position; p < end; ++p) {
        ensure_gathered(p, when);
        ensure_gathered(p + 1, when);  // the prefetch
      }
      if (when == phase::backward && reduces) reduce_finished(use, end);
      position = end;
    }
  }

  void ensure_gathered(std::size_t position, phase when) {
    if (position >= order_.size() || gathered_[order_[position].value]) return;
    gathered_[order_[position].value] = true;
    gather(order_[position], true, when, plan_.request.bytes.parameter);
    gather(order_[position], false, when, plan_.request.bytes.parameter);
  }

  /// The units of a use that have no further use in this traversal; its own unit closes first.
  void reduce_finished(unit_id use, std::size_t end) {
    const auto reduce_if_last = [&](unit_id unit) {
      const auto rest = order_.begin() + static_cast<std::ptrdiff_t>(end);
      if (std::find(rest, order_.end(), unit) == order_.end()) reduce(unit);
    };
    reduce_if_last(use);
    for (const unit_id tied : layout_.tied_units(use)) reduce_if_last(tied);
  }

  bool gathers(phase when) const noexcept {
    const stage_flags stage = plan_.request.stage;
    return stage.partitions_parameters && (when == phase::forward || stage.reshards_after_forward);
  }

  void reduce(unit_id unit) {
    const std::uint64_t bytes = plan_.request.bytes.gradient;
    add(operation::reduce_scatter, phase::backward, unit, true, bytes);
    if (plan_.request.replicas > 1) {
      add_crossing(operation::crossing_reduce_scatter, unit, plan_.request.crossing_bytes());
      add_crossing(operation::crossing_all_gather, unit, bytes);
    }
    // Stage 0 keeps whole gradients on every rank: its all-reduce is the two halves.
    if (!plan_.request.stage.partitions_optimizer_state) {
      add(operation::all_gather, phase::backward, unit, true, bytes);
    }
  }

  void gather(unit_id unit, bool trainable, phase when, std::uint64_t bytes) {
    add(operation::all_gather, when, unit, trainable, bytes);
  }

  void add(operation what, phase when, unit_id unit, bool trainable, std::uint64_t bytes) {
    const unit_plan& u = plan_.units[unit.value];
    const std::uint64_t padded = (trainable ? u.trainable : u.frozen).padded_elements();
    if (padded == 0 || plan_.request.ranks == 1) return;
    const std::uint64_t real = layout_.real_elements(unit, trainable);
    list_.push_back({what, when, unit, trainable, real, padded - real, bytes});
  }

  /// This rank's shard of a unit, between the replicas.
  void add_crossing(operation what, unit_id unit, std::uint64_t bytes) {
    const partition& cut = plan_.units[unit.value].trainable;
    if (cut.shard_elements == 0) return;
    const std::uint64_t real =
        layout_.real_elements_in(unit, true, cut.owned_by(plan_.request.rank));
    list_.push_back({what, phase::backward, unit, true, real, cut.shard_elements - real, bytes});
  }

  const model_layout& layout_;
  const plan& plan_;
  std::vector<unit_id> order_;  ///< of the traversal that is listed
  std::vector<bool> gathered_;
  std::vector<planned_collective> list_;
};

}  // namespace detail

inline plan make_plan(const model_layout& layout, const plan_request& request) {
  if (request.ranks < 1 || request.rank < 0 || request.rank >= request.ranks) {
    throw usage_error("zero::make_plan: rank " + std::to_string(request.rank) + " of " +
                      std::to_string(request.ranks) + " ranks does not exist");
  }
  if (request.mode == accumulation::reduce_every && !request.stage.partitions_optimizer_state) {
    throw usage_error(
        "zero::make_plan: accumulation::reduce_every needs a stage that partitions something "
        "(1 to 3); stage 0 offers reduce_last");
  }
  if (request.replicas < 1 ||
      request.ranks > std::numeric_limits<int>::max() / request.replicas) {
    throw usage_error("zero::make_plan: " + std::to_string(request.replicas) + " replicas of " +
                      std::to_string(request.ranks) + " ranks are none or more than 2^31 - 1");
  }
  if (request.replicas > 1 && !request.stage.partitions_optimizer_state) {
    throw usage_error(
        "zero::make_plan: replicas of shards need a stage that partitions something (1 to 3); at "
        "stage 0 all ranks are replicas anyway");
  }
  return detail::plan_builder(layout, request).build();
}

inline std::vector<planned_collective> step_collectives(const model_layout& layout,
                                                        const plan& plan,
                                                        std::uint64_t micro_batches) {
  return detail::step_lister(layout, plan).list(micro_batches);
}

}  // namespace zero
