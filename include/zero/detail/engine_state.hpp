// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <zero/communicator.hpp>
#include <zero/detail/communicator_queries.hpp>
#include <zero/detail/executor.hpp>
#include <zero/detail/traffic.hpp>
#include <zero/detail/traversal.hpp>
#include <zero/detail/unit_store.hpp>
#include <zero/engine_options.hpp>
#include <zero/layout.hpp>
#include <zero/ledger.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/plan.hpp>

namespace zero::detail {

/// What is going on with a unit in the current pass.
template <class Work>
struct unit_progress {
  std::array<Work, 2> gathers;  ///< trainable and frozen parameters on their way
  Work reduction;               ///< gradients on their way
  bool is_gathered = false;     ///< readable, or on its way
  bool window_is_open = false;  ///< the user may write gradients
  bool is_reduced = false;      ///< in this micro-batch
  std::uint32_t ready = 0;      ///< trainable tensors reported by gradient_ready
  std::uint32_t trainable_tensors = 0;
};

struct tensor_progress {
  bool is_written = false;  ///< its gradient was accessed in this window
  bool is_ready = false;
  bool has_values = false;  ///< initialised, imported or loaded
};

/// Everything that the parts of an engine share. One object per engine and rank.
template <Stage S, Precision P, class C, Optimizer O>
struct engine_state {
  using stage = S;
  using precision = P;
  using communicator = C;
  using optimizer_type = O;
  using space = typename C::memory_space;
  using queue = typename C::queue;
  using work = typename C::work;
  using parameter_type = typename P::parameter_type;
  using gradient_type = typename P::gradient_type;
  using accumulation_type = typename P::accumulation_type;
  using store = unit_store<P, O::moments_per_element>;

  static_assert(
      requires { sizeof(detail::executor<space>); },
      "zero::engine: the communicator's buffers are in device memory; include <zero/cuda.hpp>");

  engine_state(C& comm, const model_layout& model, const O& how, const engine_options& settings,
               const plan_request& request)
      : layout(model),
        optimizer(how),
        options(settings),
        plan(make_plan(layout, request)),
        executor(comm),
        wire(comm, books.initialization, plan.request.crossing_bytes()),
        walk(layout),
        units(layout.unit_count()),
        tensors(layout.tensor_count()) {
    for (std::uint32_t t = 0; t < layout.tensor_count(); ++t) {
      const tensor_info info = layout.info(tensor_id{t});
      if (info.trainable && !layout.is_tied(tensor_id{t})) {
        ++units[info.unit.value].trainable_tensors;
      }
      tensors[t].has_values = info.elements == 0;
    }
  }

  /// All but the control block's bytes.
  static plan_request request_of(const C& comm, const engine_options& options) {
    using compute_type = typename element_traits<gradient_type>::compute_type;
    return {flags_of<S>(),
            bytes_of<P, O>(),
            comm.size(),
            comm.rank(),
            options.accumulation,
            replicas_of(comm),
            crosses_unrounded(comm) ? sizeof(compute_type) : sizeof(gradient_type)};
  }

  int ranks() const noexcept { return plan.request.ranks; }
  int rank() const noexcept { return plan.request.rank; }
  /// Over all replicas: what a mean divides by.
  int all_ranks() const noexcept { return plan.request.all_ranks(); }
  bool reduces_every() const noexcept { return plan.request.mode == accumulation::reduce_every; }
  store& at(unit_id unit) noexcept { return stores[unit.value]; }
  unit_progress<work>& progress(unit_id unit) noexcept { return units[unit.value]; }
  std::string name(unit_id unit) const { return std::string(layout.unit_name(unit)); }
  std::string name(tensor_id tensor) const { return std::string(layout.info(tensor).name); }
  bool has_trainable(unit_id unit) const noexcept {
    return stores[unit.value].trainable.padded_elements() != 0;
  }

  model_layout layout;
  O optimizer;
  engine_options options;
  zero::plan plan;
  detail::executor<space> executor;  ///< before the arena, which gives its block back to it
  zero::ledger books;
  traffic<C> wire;
  zero::arena memory;  ///< before the handles in `units`: they wait for what still uses it
  traversal walk;
  std::vector<unit_progress<work>> units;
  std::vector<tensor_progress> tensors;
  std::vector<store> stores;
  std::uint64_t micro_batch = 0;    ///< of the pass that is open, or of the next one
  std::uint64_t micro_batches = 1;  ///< of the current step
};

/// Two places at the ends of a shared region; a unit with a slot of its own needs none.
class shared_region {
 public:
  std::optional<unit_id> occupant(const unit_plan& unit) const noexcept {
    return occupants_[unit.slot_parity];
  }
  void occupy(const unit_plan& plan, unit_id unit) noexcept { occupants_[plan.slot_parity] = unit; }
  void vacate(const unit_plan& plan) noexcept { occupants_[plan.slot_parity].reset(); }

 private:
  std::array<std::optional<unit_id>, 2> occupants_;
};

}  // namespace zero::detail
