// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <zero/detail/engine_check.hpp>
#include <zero/detail/engine_core.hpp>
#include <zero/engine_options.hpp>
#include <zero/fwd.hpp>
#include <zero/layout.hpp>
#include <zero/ledger.hpp>
#include <zero/plan.hpp>
#include <zero/scopes.hpp>

namespace zero {

/// Trains a model under one ZeRO stage.
///
/// S says which model states are partitioned, P how they are stored, C how ranks talk, O how an
/// element is updated; what a stage does not need is not compiled. The engine borrows the
/// communicator, which serves one engine at a time, and copies the layout. All memory is taken at
/// construction: passes and steps allocate nothing.
/// Calls on one engine come one at a time; the calling thread may change. Collective means: every
/// rank of the communicator makes the call, in the same order.
/// Errors: usage_error for misuse; communicator_error and its kinds, after which the engine is
/// poisoned and every call throws the first error again.
template <class S, class P, class C, class O>
class engine {
  static_assert(detail::check_engine_arguments<S, P, C, O>());
};

template <Stage S, Precision P, HasTopology C, Optimizer O>
requires(!detail::MisplacedReplicas<S, C> && detail::CanCarry<C, typename P::gradient_type> &&
         CanAllGather<C, typename P::parameter_type> && detail::CanCarryMaster<C, P> &&
         CanAllGather<C, std::uint64_t> && CanAllReduce<C> && CanBroadcast<C, float> &&
         CanBroadcast<C, typename P::parameter_type>) class engine<S, P, C, O> {
  using core_type = detail::engine_core<S, P, C, O>;

 public:
  using stage = S;
  using precision = P;
  using communicator = C;
  using optimizer_type = O;
  using space = typename C::memory_space;
  using queue = typename C::queue;
  using parameter_type = typename P::parameter_type;
  using gradient_type = typename P::gradient_type;
  using pass = training_pass<core_type>;
  using evaluation = evaluation_pass<core_type>;
  /// What step() returns; its get() gives the step's report.
  using ticket = typename core_type::ticket;

  /// Compares the ranks' descriptions, then takes all memory. Collective.
  ///
  /// A queue that was passed to an engine stays valid until another one was, or the engine is gone:
  /// calls in one queue are ordered after those in the queue before.
  /// Moves: eight words per rank, on the fingerprint line.
  /// Throws: mismatch_error on every rank when layouts, options or types differ; usage_error when
  /// the communicator serves another engine.
  engine(C& ranks, const model_layout& layout, const O& optimizer,
         const engine_options& options = {}, queue q = {})
      : core_(ranks, layout, optimizer, options, q) {}

  /// Bytes of the arena of one rank. Units: bytes. No collective, no engine needed.
  static std::uint64_t required_bytes(const model_layout& layout, int ranks, int rank = 0,
                                      accumulation mode = accumulation::none) {
    return make_plan(layout, core_type::with_control(
                                 layout, {flags_of<S>(), bytes_of<P, O>(), ranks, rank, mode}))
        .arena_bytes;
  }

  // --- values ---------------------------------------------------------------------------------

  /// Sets all tensors: `values(tensor_info, first, std::span<float>)` fills a run of a tensor that
  /// begins at element `first`. Each rank is asked for its own shards only, so values should
  /// depend on `tensor_info::key` and the index alone to be the same for every N.
  /// Collective. Moves: the parameters (and at stage 0 the masters), where they are replicated.
  template <class Function>
  void initialize(Function&& values, queue q = {}) {
    begin_values("initialize", q);
    core_.guarded([&] { core_.tensors.initialize(values, q); });
  }

  /// Sets one tensor from rank `source.rank`'s values. Collective. Moves: the tensor, in fp32.
  void import_tensor(tensor_id tensor, std::span<const float> values, from_rank source,
                     queue q = {}) {
    begin_values("import_tensor", q);
    core_.guarded([&] { core_.tensors.import_from(tensor, values, source.rank, q); });
  }
  /// Sets one tensor from values that all ranks have. Collective. Moves: a hash.
  /// Throws: mismatch_error on every rank when the values differ.
  void import_tensor(tensor_id tensor, std::span<const float> values, same_on_all_ranks_t,
                     queue q = {}) {
    begin_values("import_tensor", q);
    core_.guarded([&] { core_.tensors.import_same(tensor, values, q); });
  }

  /// Writes the tensor's fp32 values (the masters where the precision has them) on every rank.
  /// Collective. Moves: the tensor's elements where they are partitioned.
  void export_tensor(tensor_id tensor, std::span<float> values, queue q = {}) {
    begin_values("export_tensor", q);
    core_.guarded([&] { core_.tensors.export_values(tensor, values, q); });
  }
  /// Writes the tensor's parameters as they are stored. Collective.
  void export_parameters(tensor_id tensor, std::span<parameter_type> values, queue q = {}) {
    begin_values("export_parameters", q);
    core_.guarded([&] { core_.tensors.export_parameters(tensor, values, q); });
  }

  /// Calls `function(tensor_info, first, std::span<const float>)` for the runs of trainable
  /// tensors whose state this rank owns, in pieces. For debugging. Local.
  template <class Function>
  void for_each_owned(owned_state which, Function&& function, queue q = {}) {
    core_.require_idle("for_each_owned");
    core_.continue_in(q);
    core_.parameters.wait_all(q);
    visit_owned(which, function, q);
  }

  // --- passes ---------------------------------------------------------------------------------

  /// Begins a micro-batch. Collective. Throws: usage_error before the tensors have values, out of
  /// turn, or with several micro-batches and no accumulation mode.
  [[nodiscard]] pass train(micro_batch_position position = {}) {
    core_.begin_training(position);
    return pass(core_);
  }

  /// Begins a pass without gradients. Collective. Moves: Psi at stage 3, on the evaluation line.
  [[nodiscard]] evaluation evaluate() {
    core_.begin_evaluation();
    return evaluation(core_);
  }

  /// Updates the parameters with the gradients of the finished micro-batches. Collective.
  /// Moves: a few doubles, and at stages 1 and 2 the updated parameters.
  /// Throws: usage_error when micro-batches are missing or a pass is open; mismatch_error on every
  /// rank, before any state changes, when the arguments differ (on devices from the ticket).
  ticket step(const step_arguments& arguments = {}, queue q = {}) {
    return core_.step(arguments, q);
  }

  /// A step in two parts, for steps that a CUDA graph captures: the arguments of the next one,
  /// which has as many micro-batches as the one in progress or else as the latest, by a copy
  /// outside of the capture. Local. Throws: usage_error.
  void prepare_step(const step_arguments& arguments = {}, queue q = {}) {
    core_.prepare_step(arguments, q);
  }
  /// And the step itself, as step() does it. Collective.
  ticket step_prepared(queue q = {}) { return core_.step_prepared(q); }

  /// Orders what follows in `q` after everything that the engine has on its way.
  void wait(queue q = {}) { core_.wait(q); }

  // --- what there is --------------------------------------------------------------------------

  /// A tensor's parameters without a scope, where they are replicated (stages 0 to 2; a compile
  /// error at stage 3). Waits for the gather of its unit. The address is fixed for the engine's
  /// life, the values change with every step.
  range<const parameter_type, full, space> parameters(tensor_id tensor, queue q = {}) {
    static_assert(!S::partitions_parameters,
                  "zero: engine.parameters(tensor) needs a stage that replicates parameters (0 to "
                  "2); at stage 3 read them in pass.forward(unit)");
    core_.check_failure();
    core_.continue_in(q);
    const tensor_info info = core_.owner_info(tensor);
    core_.parameters.wait(info.unit, q);
    auto& store = core_.state.at(info.unit);
    return {(info.trainable ? store.parameters : store.frozen_parameters)
                .at(core_.state.layout.offset(info.id)),
            info.elements};
  }

  const model_layout& layout() const noexcept { return core_.state.layout; }
  const zero::plan& plan() const noexcept { return core_.state.plan; }
  const zero::ledger& ledger() const noexcept { return core_.state.books; }
  int rank() const noexcept { return core_.state.rank(); }
  int ranks() const noexcept { return core_.state.ranks(); }
  /// What the latest step did, as far as its ticket would say; also where a graph has run it.
  /// Devices: waits for what the queue holds.
  /// Throws: usage_error before the first step; mismatch_error as the ticket of that step.
  step_report latest_report(queue q = {}) {
    core_.require_idle("latest_report");
    core_.continue_in(q);
    return core_.latest_report();
  }

  // The next four wait for the engine's latest queue where its memory is a device's.
  /// Steps taken; skipped ones do not count.
  std::uint64_t steps() const noexcept(is_host) { return control().steps; }
  std::uint64_t skipped_steps() const noexcept(is_host) { return control().skipped_steps; }
  /// What the next pass multiplies its loss with.
  double loss_scale() const noexcept(is_host) { return detail::loss_scale_of<P>(control()); }
  /// Overflows that happened although the loss scale was at its minimum.
  std::uint64_t overflows_at_minimum_scale() const noexcept(is_host) {
    return control().overflows_at_minimum;
  }

 private:
  static constexpr bool is_host = std::is_same_v<space, host_space>;

  decltype(auto) control() const noexcept(is_host) {
    return core_.updates.control(core_.last_queue());
  }

  void begin_values(const char* call, queue q) {
    core_.require_idle(call);
    core_.continue_in(q);
    core_.state.wire.book_on(core_.state.books.initialization);
  }

  template <class Function>
  void visit_owned(owned_state which, Function& function, queue q) {
    for (std::uint32_t u = 0; u < layout().unit_count(); ++u) {
      auto& store = core_.state.at(unit_id{u});
      for (const detail::segment& part : store.shard_segments) {
        const tensor_info info = layout().info(part.tensor);
        switch (which) {
          case owned_state::parameters:
            visit(info, part, store.parameters, function, q);
            break;
          case owned_state::masters:
            visit_values(info, part, function, q);
            break;
          case owned_state::gradients:
            core_.gradients.with_reduced(unit_id{u}, [&](const auto& gradients) {
              visit(info, part, gradients, function, q);
            });
            break;
          case owned_state::first_moment:
            visit_moment<0>(info, part, store, function, q);
            break;
          case owned_state::second_moment:
            visit_moment<1>(info, part, store, function, q);
            break;
        }
      }
    }
  }

  template <std::size_t Moment, class Store, class Function>
  void visit_moment(const tensor_info& info, const detail::segment& part, Store& store,
                    Function& function, queue q) {
    if constexpr (Moment < O::moments_per_element) {
      visit(info, part, store.moments[Moment], function, q);
    }
  }

  template <class T, class Function>
  void visit(const tensor_info& info, const detail::segment& part, const detail::placed<T>& state,
             Function& function, queue q) {
    std::array<T, visited_elements> stored;
    visit_with(info, part, function, [&](std::uint64_t position, std::span<float> values) {
      core_.state.executor.download(state.at(position), stored.data(), values.size(), q);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stored[i]);
    });
  }

  template <class Function>
  void visit_values(const tensor_info& info, const detail::segment& part, Function& function,
                    queue q) {
    typename detail::tensor_io<typename core_type::state_type>::piece_buffers buffers(
        visited_elements);
    visit_with(info, part, function, [&](std::uint64_t position, std::span<float> values) {
      core_.tensors.read_values(info, position, values, buffers, q);
    });
  }

  /// `read(position, values)` gets the values in pieces.
  template <class Function, class Read>
  void visit_with(const tensor_info& info, const detail::segment& part, Function& function,
                  Read read) {
    std::array<float, visited_elements> piece;
    for (std::uint64_t done = 0; done < part.count; done += piece.size()) {
      const std::uint64_t count = std::min<std::uint64_t>(piece.size(), part.count - done);
      const std::span<float> values(piece.data(), static_cast<std::size_t>(count));
      read(part.begin + done, values);
      function(info, part.first_in_tensor + done, std::span<const float>(values));
    }
  }

  static constexpr std::size_t visited_elements = 256;

  core_type core_;
};

}  // namespace zero
