// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/detail/completed_work.hpp>

namespace zero::detail {

/// The work of any host communicator, held in place: it never allocates.
class any_work {
 public:
  static constexpr std::size_t capacity = 64;

  any_work() noexcept = default;

  /// A handle that is complete when it is made is not worth keeping.
  explicit any_work(completed_work) noexcept {}

  template <class W>
    requires(!std::is_same_v<W, any_work>) && Work<W, host_queue>
  explicit any_work(W work) noexcept : operations_(&operations_for<W>) {
    static_assert(sizeof(W) <= capacity && alignof(W) <= alignof(std::max_align_t),
                  "zero::any_communicator: this communicator's work is too large to be erased");
    static_assert(std::is_nothrow_move_constructible_v<W>);
    new (storage_) W(std::move(work));
  }

  any_work(any_work&& other) noexcept { take(other); }
  any_work& operator=(any_work&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  any_work(const any_work&) = delete;
  any_work& operator=(const any_work&) = delete;
  ~any_work() { reset(); }

  void wait(host_queue on) {
    if (operations_ != nullptr) operations_->wait(storage_, on);
  }

 private:
  struct operations {
    void (*wait)(std::byte*, host_queue);
    void (*move)(std::byte* from, std::byte* to) noexcept;  // and ends the source
    void (*destroy)(std::byte*) noexcept;
  };

  template <class W>
  static W& as(std::byte* storage) noexcept {
    return *std::launder(reinterpret_cast<W*>(storage));
  }

  template <class W>
  static constexpr operations operations_for{
      [](std::byte* storage, host_queue on) { as<W>(storage).wait(on); },
      [](std::byte* from, std::byte* to) noexcept {
        new (to) W(std::move(as<W>(from)));
        std::destroy_at(&as<W>(from));
      },
      [](std::byte* storage) noexcept { std::destroy_at(&as<W>(storage)); }};

  void take(any_work& other) noexcept {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_ != nullptr) operations_->move(other.storage_, storage_);
  }
  void reset() noexcept {
    if (const auto* held = std::exchange(operations_, nullptr)) held->destroy(storage_);
  }

  alignas(std::max_align_t) std::byte storage_[capacity];
  const operations* operations_ = nullptr;
};

static_assert(Work<any_work, host_queue>);

}  // namespace zero::detail
