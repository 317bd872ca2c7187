// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <zero/detail/engine_state.hpp>
#include <zero/detail/fingerprint_exchange.hpp>
#include <zero/detail/gradient_flow.hpp>
#include <zero/detail/parameter_flow.hpp>
#include <zero/detail/take_memory.hpp>
#include <zero/detail/tensor_io.hpp>
#include <zero/detail/update_flow.hpp>
#include <zero/detail/update_flow_for.hpp>
#include <zero/error.hpp>
#include <zero/fingerprint.hpp>

namespace zero::detail {

/// The order of things in a step: passes, traversals, scopes, update. What each of them does to
/// parameters, gradients and optimizer states is said in the three flows.
template <Stage S, Precision P, class C, Optimizer O>
class engine_core {
 public:
  using stage = S;
  using state_type = engine_state<S, P, C, O>;
  using queue = typename C::queue;
  using space = typename C::memory_space;
  using parameter_type = typename P::parameter_type;
  using gradient_type = typename P::gradient_type;

  using updates_type = update_flow_for<state_type>;
  using ticket = typename updates_type::ticket;

  engine_core(C& communicator, const model_layout& layout, const O& optimizer,
              const engine_options& options, queue q)
      : state(communicator, layout, optimizer, options,
              with_control(layout, state_type::request_of(communicator, options))),
        last_queue_(q) {
    if (!communicator.claim()) {
      throw usage_error(
          "zero::engine: another engine uses this communicator; split() it or build a second one");
    }
    try {
      compare_fingerprints();
      take_memory<P, O>(state, q);
      updates.start(q);
    } catch (...) {
      communicator.unclaim();
      throw;
    }
  }
  engine_core(const engine_core&) = delete;
  engine_core& operator=(const engine_core&) = delete;
  ~engine_core() {
    lend_scratch(state.wire.communicator(), {});
    state.wire.communicator().unclaim();
  }

  /// What a plan has to know besides the layout: the control block depends on the updates.
  static plan_request with_control(const model_layout& layout, plan_request request) {
    request.control_bytes = updates_type::control_bytes(layout, request);
    return request;
  }

  // --- passes ---------------------------------------------------------------------------------

  void begin_training(micro_batch_position position) {
    require_idle("train");
    require_values();
    if (position.of == 0 || position.micro_batch >= position.of) {
      throw usage_error("zero::engine::train: micro-batch " + std::to_string(position.micro_batch) +
                        " of " + std::to_string(position.of) + " does not exist");
    }
    if (position.of > 1 && state.options.accumulation == accumulation::none) {
      throw usage_error("zero::engine::train: " + std::to_string(position.of) +
                        " micro-batches need engine_options::accumulation (reduce_last or "
                        "reduce_every); it is none");
    }
    if (state.micro_batch != 0 && position.of != state.micro_batches) {
      throw usage_error("zero::engine::train: the step began with " +
                        std::to_string(state.micro_batches) +
                        " micro-batches, now it is said to "
                        "have " +
                        std::to_string(position.of));
    }
    if (position.micro_batch != state.micro_batch) {
      throw usage_error("zero::engine::train: micro-batch " + std::to_string(position.micro_batch) +
                        " was begun where " + std::to_string(state.micro_batch) +
                        (state.micro_batch == position.of ? " (step()) is due" : " is due"));
    }
    state.micro_batches = position.of;
    for (auto& progress : state.units) progress.is_reduced = false;
    begin(pass_kind::training, moving_);
  }

  void begin_evaluation() {
    require_idle("evaluate");
    require_values();
    begin(pass_kind::evaluation, state.books.evaluation);
  }

  void forward_again() {
    require_pass();
    if (state.walk.way() != direction::forward) {
      throw usage_error("zero::engine: forward_again() after the backward traversal has begun");
    }
    finish_forward(last_queue_);
    state.walk.restart(direction::forward);
  }

  void end_pass() {
    check_failure();
    require_pass();
    if (kind_ == pass_kind::training) finish_backward(last_queue_);
    require_closed("the end of the pass");
    guarded([&] {
      parameters.release_all(last_queue_);
      if (kind_ == pass_kind::training) gradients.finish_micro_batch(last_queue_);
    });
    if (kind_ == pass_kind::training) ++state.micro_batch;
    kind_ = pass_kind::none;
  }

  /// Leaves the pass without a word to anybody but through the communicator.
  void abandon(const std::string& reason) noexcept {
    kind_ = pass_kind::none;
    state.walk.close_all();
    fail(std::make_exception_ptr(error("zero::engine: " + reason)), reason);
  }

  // --- units ----------------------------------------------------------------------------------

  void open(unit_id unit, direction way, queue q) {
    check_failure();
    require_pass();
    continue_in(q);
    turn_to(way, q);
    const auto tied = state.layout.tied_units(unit);
    if (way == direction::forward) {
      for (const unit_id other : tied) open_one(other, q);
    }
    open_one(unit, q);
    if (way == direction::backward) {
      for (auto other = tied.rbegin(); other != tied.rend(); ++other) open_one(*other, q);
    }
  }

  void close(unit_id unit, queue q) {
    check_failure();
    require_pass();
    continue_in(q);
    close_one(unit, q);
    for (const unit_id other : state.layout.tied_units(unit)) close_one(other, q);
  }

  const parameter_type* parameter(tensor_id tensor) {
    const tensor_info info = owner_info(tensor);
    if (!state.walk.is_open(info.unit)) {
      throw usage_error("zero::engine: tensor \"" + state.name(tensor) +
                        "\" was read while unit \"" + state.name(info.unit) + "\" is not open");
    }
    auto& store = state.at(info.unit);
    return (info.trainable ? store.gathered : store.gathered_frozen)
        .at(state.layout.offset(info.id));
  }

  /// Opens the window of a replicated gradient on demand: no scope is needed at stages 0 and 1.
  gradient_type* replicated_gradient(tensor_id tensor, bool overwrite, queue q) {
    check_failure();
    require_training();
    continue_in(q);
    gradients.open_window(owner_info(tensor).unit, q);
    return gradients.gradient(tensor, overwrite, q);
  }

  void gradient_ready(tensor_id tensor, queue q) {
    check_failure();
    require_training();
    continue_in(q);
    if (gradients.mark_ready(tensor)) {
      guarded([&] { gradients.reduce(owner_info(tensor).unit, q); });
    }
  }

  // --- step -----------------------------------------------------------------------------------

  /// Takes the arguments of the next step, which has as many micro-batches as the one that is in
  /// progress, or else as the latest.
  void prepare_step(const step_arguments& arguments, queue q) {
    require_idle("prepare_step");
    continue_in(q);
    guarded([&] {
      // Nothing from before the step remains to be waited for in it: it may be captured.
      parameters.wait_all(q);
      updates.prepare(arguments, q);
    });
    prepared_micro_batches_ = state.micro_batches;
  }

  ticket step(const step_arguments& arguments, queue q) {
    require_micro_batches();
    prepare_step(arguments, q);
    return step_prepared(q);
  }

  ticket step_prepared(queue q) {
    const auto start = std::chrono::steady_clock::now();
    require_micro_batches();
    if (prepared_micro_batches_ != state.micro_batches) {
      throw usage_error("zero::engine::step: it was prepared for " +
                        std::to_string(prepared_micro_batches_) + " micro-batches and has " +
                        std::to_string(state.micro_batches));
    }
    continue_in(q);
    guarded([&] {
      state.wire.book_on(moving_);
      gradients.settle(q);
      parameters.wait_all(q);
      updates.run(q);
      // A skipped step moves the same elements: ranks never take different paths.
      parameters.distribute_updates(q);
      state.executor.finish_step(q, [&] { parameters.wait_all(q); });
    });
    return finish_step(start, q);
  }

  step_report latest_report() {
    const auto& control = updates.control(last_queue_);
    if (control.steps + control.skipped_steps == 0 && control.arguments_differ == 0) {
      throw usage_error("zero::engine::latest_report: no step was taken yet");
    }
    if (control.arguments_differ != 0) throw_mismatch(state, control.steps);
    step_report report;
    fill_report(control, report);
    report.moved = state.books.step;
    return report;
  }

  /// Orders what follows in `q` after everything that is on its way.
  void wait(queue q) {
    check_failure();
    continue_in(q);
    guarded([&] {
      gradients.settle(q);
      parameters.wait_all(q);
    });
  }

  /// Calls come in one queue after the other: what was begun in one is visible in the next.
  void continue_in(queue q) {
    state.executor.follow(last_queue_, q);
    last_queue_ = q;
  }
  queue last_queue() const noexcept { return last_queue_; }

  // --- failure --------------------------------------------------------------------------------

  void check_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  /// Runs what may fail together with other ranks; a failure poisons engine and communicator.
  template <class Function>
  void guarded(Function&& function) {
    try {
      function();
    } catch (const usage_error&) {
      throw;
    } catch (const mismatch_error&) {
      // Every rank knows of a mismatch, and no state has changed.
      throw;
    } catch (const std::exception& e) {
      fail(std::current_exception(), e.what());
      throw;
    } catch (...) {
      fail(std::current_exception(), "an exception that is not a std::exception");
      throw;
    }
  }

  /// Keeps the error of a call that cannot throw; the next call does.
  void fail(std::exception_ptr failure, const std::string& reason) noexcept {
    if (!failure_) failure_ = std::move(failure);
    state.wire.communicator().abort(reason);
  }

  void require_idle(const char* call) const {
    check_failure();
    if (kind_ == pass_kind::none) return;
    const std::optional<unit_id> open = state.walk.first_open();
    throw usage_error("zero::engine::" + std::string(call) + ": a pass is still open" +
                      (open ? ", and with it unit \"" + state.name(*open) + "\"" : ""));
  }

  void require_pass() const {
    if (kind_ == pass_kind::none) throw usage_error("zero::engine: the pass has ended");
  }

  tensor_info owner_info(tensor_id tensor) const {
    return state.layout.info(state.layout.owner(tensor));
  }

  state_type state;
  parameter_flow<state_type> parameters{state};
  gradient_flow<state_type> gradients{state};
  updates_type updates{state, gradients};
  tensor_io<state_type> tensors{state, parameters};

 private:
  enum class pass_kind : std::uint8_t { none, training, evaluation };

  void compare_fingerprints() {
    if (state.all_ranks() == 1) return;
    hasher extra;
    extra.add(static_cast<std::uint64_t>(state.options.skipped_units))
        .add(state.options.loss_scale.initial)
        .add(state.options.loss_scale.growth)
        .add(state.options.loss_scale.backoff)
        .add(state.options.loss_scale.window)
        .add(state.options.loss_scale.minimum)
        .add(state.options.loss_scale.maximum);
    if (state.plan.request.replicas > 1) {
      extra.add(static_cast<std::uint64_t>(state.plan.request.replicas))
          .add(state.plan.request.crossing_bytes());
    }
    state.wire.book_on(state.books.fingerprint);
    fingerprint_exchange<C>(state.wire, state.layout, state.executor, last_queue_)
        .compare(fingerprint_of<S, P>(state.layout, state.optimizer,
                                      {state.ranks(), state.options.accumulation, extra.value()}));
    state.wire.book_on(state.books.initialization);
  }

  void require_micro_batches() const {
    require_idle("step");
    if (state.micro_batch == state.micro_batches) return;
    throw usage_error("zero::engine::step: " + std::to_string(state.micro_batch) + " of " +
                      std::to_string(state.micro_batches) + " micro-batches have ended");
  }

  void begin(pass_kind kind, moved_elements& line) {
    kind_ = kind;
    state.wire.book_on(line);
    state.walk.close_all();
    state.walk.restart(direction::forward);
  }

  void require_values() const {
    for (std::uint32_t t = 0; t < state.layout.tensor_count(); ++t) {
      const tensor_id owner = state.layout.owner(tensor_id{t});
      if (state.tensors[owner.value].has_values) continue;
      throw usage_error("zero::engine: tensor \"" + state.name(owner) +
                        "\" has no values yet; call initialize() or import_tensor() before the "
                        "first pass");
    }
  }

  void require_training() const {
    require_pass();
    if (kind_ == pass_kind::evaluation) {
      throw usage_error("zero::engine: an evaluation pass has no backward and no gradients");
    }
  }

  void require_closed(const char* when) const {
    const std::optional<unit_id> open = state.walk.first_open();
    if (!open) return;
    throw usage_error("zero::engine: unit \"" + state.name(*open) + "\" is still open at " + when);
  }

  void turn_to(direction way, queue q) {
    if (way == state.walk.way()) return;
    if (way == direction::forward) {
      throw usage_error("zero::engine: a unit was opened forward after backward has begun");
    }
    require_training();
    finish_forward(q);
    state.walk.restart(direction::backward);
  }

  /// Every unit has run forward, or takes part now. Plain loops over replicated parameters that
  /// open no scopes at all have nothing to finish.
  void finish_forward(queue q) {
    if (!state.walk.has_started() && !S::partitions_parameters) return;
    complete_traversal("forward", q);
    require_closed("the end of the forward traversal");
  }

  void finish_backward(queue q) {
    if (state.walk.way() == direction::forward) turn_to(direction::backward, q);
    if (S::partitions_gradients || state.options.skipped_units == skipped_units::zeros) {
      complete_traversal("backward", q);
    }
    require_closed("the end of the pass");
    if constexpr (!S::partitions_gradients) {
      // What no scope has reduced, in the order of a backward traversal.
      guarded([&] {
        for (auto unit = state.plan.schedule.rbegin(); unit != state.plan.schedule.rend(); ++unit) {
          if (state.progress(*unit).is_reduced) continue;
          gradients.open_window(*unit, q);
          gradients.reduce(*unit, q);
        }
      });
    }
  }

  void complete_traversal(const char* way, queue q) {
    while (const std::optional<unit_id> next = state.walk.next()) {
      if (state.options.skipped_units == skipped_units::error) {
        throw usage_error("zero::engine: unit \"" + state.name(*next) + "\" never ran " + way +
                          " in this pass (engine_options::skipped_units = zeros lets it take part "
                          "without)");
      }
      open_one(*next, q);
      close_one(*next, q);
    }
  }

  void open_one(unit_id unit, queue q) {
    if (state.options.skipped_units == skipped_units::zeros && !state.walk.is_open(unit)) {
      for (auto distance = state.walk.distance_to(unit); distance && *distance > 0; --*distance) {
        const unit_id skipped = *state.walk.next();
        open_one(skipped, q);
        close_one(skipped, q);
      }
    }
    if (!state.walk.open(unit)) return;
    guarded([&] {
      parameters.require(unit, q);
      if (state.walk.way() == direction::backward) gradients.open_window(unit, q);
      prefetch(q);
    });
  }

  void close_one(unit_id unit, queue q) {
    if (!state.walk.close(unit) || !state.walk.is_last_use(unit)) return;
    guarded([&] {
      const bool is_backward = state.walk.way() == direction::backward;
      if (is_backward) gradients.reduce(unit, q);
      if (is_backward || S::reshards_after_forward || kind_ == pass_kind::evaluation) {
        parameters.release(unit, q);
      }
      prefetch(q);
    });
  }

  void prefetch(queue q) {
    if (const std::optional<unit_id> next = state.walk.next()) parameters.prefetch(*next, q);
  }

  ticket finish_step(std::chrono::steady_clock::time_point start, queue q) {
    state.micro_batch = 0;
    state.books.step = moving_;
    moving_ = {};
    step_report report;
    report.moved = state.books.step;
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return updates.finish(report, q);
  }

  pass_kind kind_ = pass_kind::none;
  queue last_queue_;
  std::uint64_t prepared_micro_batches_ = 0;
  moved_elements moving_;  ///< of the step in progress
  std::exception_ptr failure_;
};

}  // namespace zero::detail
