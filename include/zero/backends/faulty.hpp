// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/detail/decorator.hpp>
#include <zero/error.hpp>
#include <zero/range.hpp>

namespace zero {

/// What `faulty` does to the chosen call.
enum class fault_kind {
  none,
  throw_before,  ///< throws injected_fault; the inner communicator never hears of the call
  throw_after,   ///< completes the call, then throws injected_fault
  flip_bit,      ///< inverts one bit of this rank's result when the call is waited for
  wrong_count,   ///< passes empty ranges on, so that this rank disagrees with its peers
};

/// Which call fails, and how.
struct fault_plan {
  fault_kind kind = fault_kind::none;
  std::uint64_t call = 0;               ///< counted from 0 after arm(), matching calls only
  std::optional<collective> operation{};  ///< only calls of this kind match; empty: all
  std::uint64_t bit = 0;                ///< flip_bit: taken modulo the bits of the result
};

/// Thrown by `faulty` where its plan says so.
class injected_fault : public communicator_error {
 public:
  using communicator_error::communicator_error;
};

namespace detail {

/// The inner work, and the bit to invert once the result is there.
template <class Inner, class Queue>
class faulty_work {
 public:
  faulty_work() = default;
  explicit faulty_work(Inner inner, std::byte* target = nullptr, unsigned bit = 0) noexcept
      : inner_(std::move(inner)), target_(target), mask_(std::byte{1} << (bit % 8U)) {}

  faulty_work(faulty_work&& other) noexcept
      : inner_(std::move(other.inner_)),
        target_(std::exchange(other.target_, nullptr)),
        mask_(other.mask_) {}
  faulty_work& operator=(faulty_work&& other) noexcept {
    inner_ = std::move(other.inner_);
    target_ = std::exchange(other.target_, nullptr);
    mask_ = other.mask_;
    return *this;
  }
  faulty_work(const faulty_work&) = delete;
  faulty_work& operator=(const faulty_work&) = delete;
  ~faulty_work() = default;

  void wait(Queue on) {
    inner_.wait(on);
    if (std::byte* target = std::exchange(target_, nullptr)) *target ^= mask_;
  }

 private:
  Inner inner_;
  std::byte* target_ = nullptr;
  std::byte mask_{};
};

}  // namespace detail

/// Fails at the k-th call, to test how programs take it; without a plan it passes everything on.
///
/// An injected failure is one of this rank alone: it does not abort the inner communicator.
template <HasTopology C>
class faulty : public detail::decorator<C> {
 public:
  using queue = typename C::queue;
  using memory_space = typename C::memory_space;
  using work = detail::faulty_work<typename C::work, queue>;

  using detail::decorator<C>::decorator;

  /// Replaces the plan and starts counting anew.
  /// Throws: usage_error for flip_bit on memory that the host cannot write.
  void arm(const fault_plan& plan) {
    if (plan.kind == fault_kind::flip_bit && !std::is_same_v<memory_space, host_space>) {
      throw usage_error("zero::faulty: flip_bit needs results in host memory");
    }
    plan_ = plan;
    matching_calls_ = 0;
    fired_ = false;
  }
  void disarm() noexcept { plan_ = {}; }

  /// Whether the plan's call came by.
  bool fired() const noexcept { return fired_; }

  template <class T, class U>
    requires CanReduceScatter<C, T, U>
  work reduce_scatter(range<const T, partial, memory_space> in, range<U, shard, memory_space> out,
                      reduce_options options, queue on) {
    const fault_kind kind = next(collective::reduce_scatter);
    if (kind == fault_kind::wrong_count) {
      in = {in.data(), 0};
      out = {out.data(), 0};
    }
    return finish(kind, collective::reduce_scatter, out,
                  this->inner().reduce_scatter(in, out, options, on), on);
  }

  template <class T>
    requires CanAllGather<C, T>
  work all_gather(range<const T, shard, memory_space> in, range<T, full, memory_space> out,
                  queue on) {
    const fault_kind kind = next(collective::all_gather);
    if (kind == fault_kind::wrong_count) {
      in = {in.data(), 0};
      out = {out.data(), 0};
    }
    return finish(kind, collective::all_gather, out, this->inner().all_gather(in, out, on), on);
  }

  work all_reduce(range<double, full, memory_space> values, queue on)
    requires CanAllReduce<C>
  {
    const fault_kind kind = next(collective::all_reduce);
    if (kind == fault_kind::wrong_count) values = {values.data(), 0};
    return finish(kind, collective::all_reduce, values, this->inner().all_reduce(values, on), on);
  }

  template <class T>
    requires CanBroadcast<C, T>
  work broadcast(range<T, full, memory_space> values, int root, queue on) {
    const fault_kind kind = next(collective::broadcast);
    if (kind == fault_kind::wrong_count) values = {values.data(), 0};
    return finish(kind, collective::broadcast, values, this->inner().broadcast(values, root, on),
                  on);
  }

  /// The part starts without a plan.
  auto split(int color)
    requires CanSplit<C>
  {
    return faulty<detail::split_of<C>>(detail::split_to_heap(this->inner(), color));
  }

 private:
  /// What happens to this call; throws where the fault comes before it.
  fault_kind next(collective operation) {
    if (plan_.operation && *plan_.operation != operation) return fault_kind::none;
    const bool is_chosen = matching_calls_++ == plan_.call;
    if (plan_.kind == fault_kind::none || !is_chosen) return fault_kind::none;
    fired_ = true;
    if (plan_.kind == fault_kind::throw_before) throw_fault("before", operation);
    return plan_.kind;
  }

  template <class T, class Role>
  work finish(fault_kind kind, collective operation, range<T, Role, memory_space> result,
              typename C::work started, queue on) {
    if (kind == fault_kind::throw_after) {
      started.wait(on);
      throw_fault("after", operation);
    }
    if (kind == fault_kind::flip_bit && !result.empty()) {
      const std::uint64_t bit = plan_.bit % (result.size() * sizeof(T) * 8);
      auto* bytes = reinterpret_cast<std::byte*>(result.data());
      return work(std::move(started), bytes + bit / 8, static_cast<unsigned>(bit % 8));
    }
    return work(std::move(started));
  }

  [[noreturn]] void throw_fault(const char* when, collective operation) const {
    throw injected_fault(std::string("injected fault ") + when + " call " +
                             std::to_string(plan_.call),
                         {.backend = std::string(this->backend_name()),
                          .rank = this->rank(),
                          .peer = this->rank(),
                          .operation = std::string(name_of(operation)),
                          .sequence = plan_.call});
  }

  fault_plan plan_{};
  std::uint64_t matching_calls_ = 0;
  bool fired_ = false;
};

template <class C>
faulty(C&) -> faulty<C>;

}  // namespace zero
