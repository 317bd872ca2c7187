// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <zero/layout.hpp>
#include <zero/loss_scale.hpp>
#include <zero/memory.hpp>
#include <zero/model_state.hpp>

namespace zero {

/// What happens when a pass leaves out a unit that the schedule names.
enum class skipped_units : std::uint8_t {
  error,  ///< usage_error that names the unit
  zeros,  ///< the unit takes part in the collectives, with zero gradients
};

/// Settings of an engine. Equal on all ranks, which the fingerprint checks; `memory` and `arena`
/// are each rank's own business.
struct engine_options {
  zero::accumulation accumulation = zero::accumulation::none;
  zero::skipped_units skipped_units = zero::skipped_units::error;
  loss_scale_options loss_scale = {};
  /// Where the arena comes from; operator new when null. Must outlive the engine.
  memory_resource* memory = nullptr;
  /// Memory of the user for the arena instead, at least `required_bytes` and 64-byte aligned.
  std::span<std::byte> arena = {};
};

/// The two traversals of a pass.
enum class direction : std::uint8_t { forward, backward };

/// Tag for import_tensor: the values of one rank count, the others' spans are not read.
struct from_rank {
  int rank = 0;
};
/// Tag for import_tensor: every rank passes the same values, which is checked.
struct same_on_all_ranks_t {};
inline constexpr same_on_all_ranks_t same_on_all_ranks{};

/// Names a state for `for_each_owned`.
enum class owned_state : std::uint8_t {
  parameters,
  masters,
  gradients,
  first_moment,
  second_moment,
};

/// Which micro-batch of a step a pass computes.
struct micro_batch_position {
  std::uint64_t micro_batch = 0;
  std::uint64_t of = 1;
};

/// A learning rate for one group, in place of lr times the group's multiplier.
struct group_rate {
  group_id group;
  double lr = 0;
};

/// Arguments of a step. Equal on all ranks: a difference is found before any state changes.
struct step_arguments {
  double lr = 1e-3;
  /// Largest global L2 norm of the mean gradient; 0 switches clipping off.
  double clip = 0;
  /// What the summed gradients are divided by, N x micro-batches when unset (token-weighted
  /// losses set the number of tokens of the global batch).
  std::optional<double> divisor{};
  std::span<const group_rate> group_lr{};
};

/// What a step did; the same on every rank but for `seconds` and `moved.wire_bytes`.
struct step_report {
  std::uint64_t step = 0;           ///< steps taken so far, this one included if not skipped
  double grad_norm = 0;             ///< global L2 norm of the mean gradient before clipping
  bool skipped = false;             ///< a gradient was not finite: no state has changed
  std::uint64_t skipped_steps = 0;  ///< since construction
  double loss_scale = 1;            ///< the scale that was in force
  moved_elements moved;             ///< of the step and its passes
  double seconds = 0;               ///< spent in step() by this rank
};

/// A step that was started. Never blocks unless asked.
class step_ticket {
 public:
  explicit step_ticket(const step_report& report) : report_(report) {}
  /// Blocks until the step is done. On the host it is done when step() returns.
  step_report get() const noexcept { return report_; }

 private:
  step_report report_;
};

}  // namespace zero
