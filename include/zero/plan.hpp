// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <zero/layout.hpp>
#include <zero/memory.hpp>
#include <zero/model_state.hpp>
#include <zero/partition.hpp>

namespace zero {

/// Everything a plan depends on.
struct plan_request {
  stage_flags stage;
  element_bytes bytes;
  int ranks = 1;
  int rank = 0;
  accumulation mode = accumulation::none;
  /// Groups that hold the same shards; `ranks` and `rank` are those inside a group.
  int replicas = 1;
  /// Bytes per element of the partial sums that cross the replicas; 0: as gradient.
  std::uint64_t crossing_element_bytes = 0;
  /// What a step decides with; engines on devices keep all of that there.
  std::uint64_t control_bytes = 8 * sizeof(double);

  constexpr int all_ranks() const noexcept { return ranks * replicas; }
  constexpr std::uint64_t crossing_bytes() const noexcept {
    return crossing_element_bytes != 0 ? crossing_element_bytes : bytes.gradient;
  }
  /// Partial sums that are not rounded yet need room of their own.
  constexpr bool crosses_from_scratch() const noexcept {
    return replicas > 1 && crossing_bytes() != bytes.gradient;
  }
};

/// A run of the arena: one state of one unit (or a region that several units share).
struct planned_buffer {
  enum class purpose : std::uint8_t {
    parameters,
    frozen_parameters,
    gradients,
    master,
    moment,
    accumulation,
    gathered_parameters,  ///< a slot of a unit's own
    unreduced_gradients,  ///< a slot of a unit's own
    shared_parameters,    ///< the region that units with one use share
    shared_gradients,
    scratch_shard,
    crossing_shard,  ///< unrounded sums of a group on their way across the replicas
    control,
  };
  purpose what = purpose::parameters;
  memory_state state = memory_state::parameters;
  std::optional<unit_id> unit;
  std::uint64_t index = 0;  ///< which moment
  std::uint64_t offset_bytes = 0;
  std::uint64_t real_bytes = 0;
  std::uint64_t padding_bytes = 0;
};

/// Where a unit's data lie in the arena. Byte offsets; `absent` where there is no such buffer.
struct unit_plan {
  static constexpr std::uint64_t absent = ~std::uint64_t{0};

  partition trainable;
  partition frozen;
  std::uint64_t uses = 1;         ///< per forward traversal
  std::uint64_t slot_parity = 0;  ///< which end of the shared regions, for units with one use
  bool shares_parameter_region = false;
  bool shares_gradient_region = false;
  std::uint64_t parameters = absent;
  std::uint64_t frozen_parameters = absent;
  std::uint64_t gradients = absent;
  std::uint64_t master = absent;
  std::vector<std::uint64_t> moments;
  std::uint64_t accumulation = absent;
  std::uint64_t gathered_trainable = absent;
  std::uint64_t gathered_frozen = absent;
  std::uint64_t unreduced_gradients = absent;
};

/// One collective of a step.
struct planned_collective {
  /// The last two run between the replicas, over one shard; the others inside the group.
  enum class operation : std::uint8_t {
    reduce_scatter,
    all_gather,
    crossing_reduce_scatter,
    crossing_all_gather,
  };
  enum class phase : std::uint8_t { forward, backward, update };
  operation what = operation::all_gather;
  phase when = phase::forward;
  unit_id unit;
  bool trainable = true;
  std::uint64_t elements = 0;  ///< real elements
  std::uint64_t padding = 0;
  std::uint64_t element_bytes = 0;
  friend bool operator==(const planned_collective&, const planned_collective&) = default;
};

/// Every buffer of one rank with its place, computed once from pure arithmetic.
///
/// Units with one use per traversal share two regions (gathered parameters, unreduced gradients):
/// units at even places lie at the front, at odd places at the back, so that two neighbours fit
/// at the same time: one in use, one in flight. A unit with several uses, or one that stays
/// gathered from forward to backward, has a slot of its own.
struct plan {
  plan_request request;
  std::vector<unit_id> schedule;
  std::vector<unit_plan> units;
  std::vector<planned_buffer> buffers;  ///< in arena order
  std::uint64_t scratch_shard = unit_plan::absent;
  std::uint64_t crossing_shard = unit_plan::absent;
  std::uint64_t control = unit_plan::absent;
  std::uint64_t arena_bytes = 0;
  held_bytes held;

  /// Doubles that ranks sum once per step: norm, verdict and check of the arguments.
  static constexpr std::uint64_t control_elements = 8;

  bool gathers_into_slots() const noexcept {
    return request.stage.partitions_parameters && request.ranks > 1;
  }
  bool reduces_from_slots() const noexcept {
    return request.stage.partitions_gradients &&
           (request.ranks > 1 || request.mode == accumulation::reduce_every);
  }
  bool keeps_gradients() const noexcept {
    return !(request.stage.partitions_gradients && request.mode == accumulation::reduce_every);
  }
};

/// The partition of a unit's trainable (or frozen) range. With replicas every shard divides
/// evenly among them, because each reduces its part of it across.
constexpr partition partition_for(const plan_request& request, std::uint64_t flat_elements,
                                  std::uint64_t alignment_elements, bool trainable) noexcept {
  const auto replicas = static_cast<std::uint64_t>(request.replicas);
  return make_partition(flat_elements, request.ranks,
                        alignment_elements * (trainable ? replicas : 1));
}

/// Computes the plan of one rank. Allocates only the plan itself: any number of ranks and any
/// model size can be planned. Throws: usage_error for ranks < 1, a rank outside, reduce_every at
/// stage 0, or replicas at stage 0.
plan make_plan(const model_layout& layout, const plan_request& request);

/// The collectives of one step with `micro_batches` micro-batches, in the order in which a plain
/// loop (one scope at a time) issues them. Empty for one rank.
std::vector<planned_collective> step_collectives(const model_layout& layout, const plan& plan,
                                                 std::uint64_t micro_batches = 1);

}  // namespace zero

#include <zero/detail/plan_inline.hpp>
