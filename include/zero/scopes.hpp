// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <zero/detail/engine_core.hpp>
#include <zero/layout.hpp>
#include <zero/range.hpp>

namespace zero {

/// Tag: the caller writes every element of the gradient, so it is not zero-filled.
struct overwrite_t {};
inline constexpr overwrite_t overwrite{};

namespace detail {

/// How a user passes fp32 values: a span on the host, a range where no host can read them.
template <class T, class Role, class Space>
using fp32_values =
    std::conditional_t<std::is_same_v<Space, host_space>, std::span<T>, range<T, Role, Space>>;

/// A unit that is open. Move-only; dropping it closes the unit.
///
/// Dropped normally it does what `finish()` does, but keeps an error for the next call of the
/// engine. Destroyed while an exception passes it moves nothing and aborts the communicator, so
/// that the peers get a typed error at once.
template <class Core>
class unit_scope {
 public:
  using parameter_type = typename Core::parameter_type;
  using space = typename Core::space;
  using queue = typename Core::queue;

  unit_scope(unit_scope&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)),
        unit_(other.unit_),
        queue_(other.queue_),
        second_queue_(other.second_queue_),
        exceptions_(other.exceptions_) {}
  unit_scope& operator=(unit_scope&& other) noexcept {
    if (this != &other) {
      drop();
      core_ = std::exchange(other.core_, nullptr);
      unit_ = other.unit_;
      queue_ = other.queue_;
      second_queue_ = other.second_queue_;
      exceptions_ = other.exceptions_;
    }
    return *this;
  }

  /// The tensor's parameters, valid while the scope is open.
  /// Throws: usage_error for a tensor of a unit that is not open.
  range<const parameter_type, full, space> parameters(tensor_id tensor) const {
    return {core().parameter(tensor), core().owner_info(tensor).elements};
  }

  /// Copies the tensor's parameters, converted to fp32, to values in the same kind of memory.
  /// Throws: usage_error for a wrong size.
  void read(tensor_id tensor, fp32_values<float, full, space> values) const {
    const std::uint64_t elements = core().owner_info(tensor).elements;
    require_size("read", tensor, elements, values.size());
    core().state.executor.convert(core().parameter(tensor), values.data(), elements, queue_);
  }

  /// Work of a second queue takes part: it may use the unit from here on, and what it holds when
  /// the scope is closed belongs to the unit. Throws: usage_error when there is a second one.
  void also_on(queue q) {
    if (second_queue_) throw usage_error("zero::scope::also_on: a scope takes one more queue");
    core().state.executor.follow(queue_, q);
    second_queue_ = q;
  }

  /// Closes the unit. In backward this starts the reduction after the unit's last use.
  /// Collective: in the order of the schedule. Throws: communicator errors.
  void finish() && {
    Core& core = this->core();
    core_ = nullptr;
    close(core);
  }

 protected:
  unit_scope(Core& core, unit_id unit, direction way, queue q)
      : core_(&core), unit_(unit), queue_(q), exceptions_(std::uncaught_exceptions()) {
    core.open(unit, way, q);
  }
  ~unit_scope() { drop(); }

  Core& core() const {
    if (core_ == nullptr) throw usage_error("zero::engine: the scope was finished already");
    return *core_;
  }
  queue in_queue() const noexcept { return queue_; }

  void require_size(const char* call, tensor_id tensor, std::uint64_t elements,
                    std::uint64_t size) const {
    if (elements == size) return;
    throw usage_error("zero::scope::" + std::string(call) + ": tensor \"" +
                      core_->state.name(tensor) + "\" has " + std::to_string(elements) +
                      " elements, the span has " + std::to_string(size));
  }

 private:
  void close(Core& core) {
    if (second_queue_) core.state.executor.follow(*second_queue_, queue_);
    core.close(unit_, queue_);
  }

  void drop() noexcept {
    if (core_ == nullptr) return;
    Core& core = *std::exchange(core_, nullptr);
    if (std::uncaught_exceptions() > exceptions_) {
      core.abandon("rank " + std::to_string(core.state.rank()) + " left unit \"" +
                   core.state.name(unit_) + "\" by an exception");
      return;
    }
    try {
      close(core);
    } catch (const std::exception& e) {
      core.fail(std::current_exception(), e.what());
    }
  }

  Core* core_;
  unit_id unit_;
  queue queue_;
  std::optional<queue> second_queue_;
  int exceptions_;
};

}  // namespace detail

/// A unit that is open in the forward traversal: its parameters can be read.
template <class Core>
class forward_scope : public detail::unit_scope<Core> {
 public:
  forward_scope(Core& core, unit_id unit, typename Core::queue q)
      : detail::unit_scope<Core>(core, unit, direction::forward, q) {}
};

/// A unit that is open in the backward traversal: parameters can be read, gradients written.
template <class Core>
class backward_scope : public detail::unit_scope<Core> {
 public:
  using gradient_type = typename Core::gradient_type;
  using space = typename Core::space;

  backward_scope(Core& core, unit_id unit, typename Core::queue q)
      : detail::unit_scope<Core>(core, unit, direction::backward, q) {}

  /// The tensor's gradient, to add into; zero-filled at its first access in this traversal.
  /// Throws: usage_error for a frozen tensor or one of a unit that is not open.
  range<gradient_type, partial, space> gradients(tensor_id tensor) const {
    return gradient(tensor, false);
  }
  /// The same without the zero-fill: every element must be written.
  range<gradient_type, partial, space> gradients(tensor_id tensor, overwrite_t) const {
    return gradient(tensor, true);
  }

  /// Adds fp32 values, of the same kind of memory, to the tensor's gradient, rounded to
  /// gradient_type. Throws: usage_error for a wrong size.
  void add(tensor_id tensor, detail::fp32_values<const float, partial, space> values) const {
    auto& flow = this->core().gradients;
    const std::uint64_t elements = this->core().owner_info(tensor).elements;
    this->require_size("add", tensor, elements, values.size());
    const bool is_first = !flow.is_written(tensor);
    auto& executor = this->core().state.executor;
    gradient_type* const target = flow.gradient(tensor, true, this->in_queue());
    if (is_first) {
      executor.convert(values.data(), target, elements, this->in_queue());
    } else {
      executor.accumulate(values.data(), target, elements, this->in_queue());
    }
  }

 private:
  range<gradient_type, partial, space> gradient(tensor_id tensor, bool overwrites) const {
    this->core().check_failure();
    return {this->core().gradients.gradient(tensor, overwrites, this->in_queue()),
            this->core().owner_info(tensor).elements};
  }
};

namespace detail {

/// A pass that is open. Move-only; dropping it ends the pass as `end()` does, with errors kept for
/// the next call; destroyed while an exception passes it aborts the communicator.
template <class Core>
class pass_base {
 public:
  using queue = typename Core::queue;

  pass_base(pass_base&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), exceptions_(other.exceptions_) {}
  pass_base& operator=(pass_base&& other) noexcept {
    if (this != &other) {
      drop();
      core_ = std::exchange(other.core_, nullptr);
      exceptions_ = other.exceptions_;
    }
    return *this;
  }

  /// Opens a unit of the forward traversal, in the order of the schedule.
  /// Collective: every rank. Moves: the unit's elements at stage 3, at its first use.
  /// Throws: usage_error for a unit that is not due; communicator errors.
  [[nodiscard]] forward_scope<Core> forward(unit_id unit, queue q = {}) {
    return {core(), unit, q};
  }

  /// Starts another forward traversal before backward (stage 3 gathers again).
  void forward_again() { core().forward_again(); }

  /// Ends the pass. Collective: every rank. Throws: usage_error when a unit is still open or was
  /// left out; communicator errors.
  void end() {
    core().end_pass();
    core_ = nullptr;
  }

 protected:
  explicit pass_base(Core& core) noexcept : core_(&core), exceptions_(std::uncaught_exceptions()) {}
  ~pass_base() { drop(); }

  Core& core() const {
    if (core_ == nullptr) throw usage_error("zero::engine: the pass has ended");
    return *core_;
  }

 private:
  void drop() noexcept {
    if (core_ == nullptr) return;
    Core& core = *std::exchange(core_, nullptr);
    if (std::uncaught_exceptions() > exceptions_) {
      core.abandon("rank " + std::to_string(core.state.rank()) + " left a pass by an exception");
      return;
    }
    try {
      core.end_pass();
    } catch (const std::exception& e) {
      core.fail(std::current_exception(), e.what());
    }
  }

  Core* core_;
  int exceptions_;
};

}  // namespace detail

/// One forward traversal without gradients; step count and loss scale are not touched.
template <class Core>
class evaluation_pass : public detail::pass_base<Core> {
 public:
  explicit evaluation_pass(Core& core) noexcept : detail::pass_base<Core>(core) {}
};

/// One micro-batch: forward, then backward in reverse order.
template <class Core>
class training_pass : public detail::pass_base<Core> {
 public:
  using queue = typename Core::queue;
  using parameter_type = typename Core::parameter_type;
  using gradient_type = typename Core::gradient_type;
  using space = typename Core::space;

  explicit training_pass(Core& core) noexcept : detail::pass_base<Core>(core) {}

  /// Opens a unit of the backward traversal, the reverse of the schedule.
  /// Collective: every rank. Moves: the unit's elements at stage 3, at its first use; its
  /// gradients when it is closed after its last use.
  [[nodiscard]] backward_scope<Core> backward(unit_id unit, queue q = {}) {
    return {this->core(), unit, q};
  }

  /// What the user multiplies the loss with; constant from the first micro-batch to its step. On
  /// devices the address of a double in device memory.
  auto loss_scale() const { return this->core().updates.pass_loss_scale(); }

  /// The call form below the scopes, for frameworks with an order of their own.
  void open(unit_id unit, direction way, queue q = {}) { this->core().open(unit, way, q); }
  void close(unit_id unit, queue q = {}) { this->core().close(unit, q); }
  range<const parameter_type, full, space> parameters(tensor_id tensor) const {
    return {this->core().parameter(tensor), this->core().owner_info(tensor).elements};
  }

  /// Says that a tensor's gradient is complete; the unit is reduced with its last tensor.
  void gradient_ready(tensor_id tensor, queue q = {}) { this->core().gradient_ready(tensor, q); }

  /// The gradient of a tensor where gradients are replicated (stages 0 and 1): no scope is
  /// needed, and `end()` reduces what no scope has reduced. A compile error at stages 2 and 3.
  range<gradient_type, partial, space> gradients(tensor_id tensor, queue q = {}) const {
    return replicated(tensor, false, q);
  }
  range<gradient_type, partial, space> gradients(tensor_id tensor, overwrite_t,
                                                 queue q = {}) const {
    return replicated(tensor, true, q);
  }
  static constexpr bool has_replicated_gradients = !Core::stage::partitions_gradients;

 private:
  range<gradient_type, partial, space> replicated(tensor_id tensor, bool overwrites,
                                                  queue q) const {
    static_assert(has_replicated_gradients,
                  "zero: pass.gradients(tensor) needs a stage that replicates gradients (0 or 1); "
                  "at stages 2 and 3 write them in pass.backward(unit)");
    return {this->core().replicated_gradient(tensor, overwrites, q),
            this->core().owner_info(tensor).elements};
  }
};

}  // namespace zero
