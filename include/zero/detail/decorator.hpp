// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <zero/communicator.hpp>

namespace zero::detail {

/// The communicator that `split` of C gives.
template <class C>
using split_of = decltype(std::declval<C&>().split(0));

/// Calls split; the result may be a type that cannot be moved.
template <CanSplit C>
std::unique_ptr<split_of<C>> split_to_heap(C& inner, int color) {
  return std::unique_ptr<split_of<C>>(new split_of<C>(inner.split(color)));
}

/// What every decorator passes on unchanged. It borrows the inner communicator, unless it was made
/// by `split`, where nobody else would own it.
template <HasTopology C>
class decorator {
 public:
  using memory_space = typename C::memory_space;
  using queue = typename C::queue;

  static constexpr summation sums = C::sums;
  static constexpr std::string_view backend_name() noexcept { return C::backend_name(); }

  explicit decorator(C& inner) noexcept : inner_(&inner) {}
  explicit decorator(std::unique_ptr<C> inner) noexcept
      : owned_(std::move(inner)), inner_(owned_.get()) {}

  decorator(const decorator&) = delete;
  decorator& operator=(const decorator&) = delete;

  int rank() const noexcept { return inner_->rank(); }
  int size() const noexcept { return inner_->size(); }
  void abort(std::string_view reason) noexcept { inner_->abort(reason); }
  bool claim() noexcept { return inner_->claim(); }
  void unclaim() noexcept { inner_->unclaim(); }

  /// The backend behind a communicator that hides its type.
  std::string_view inner_name() const noexcept requires requires(const C& c) { c.inner_name(); }
  { return inner_->inner_name(); }

  // Replicas, where the inner communicator has them.
  int replicas() const noexcept requires HasReplicas<C> { return inner_->replicas(); }
  int replica() const noexcept requires HasReplicas<C> { return inner_->replica(); }
  bool rounds_before_crossing() const noexcept requires HasReplicas<C> {
    return inner_->rounds_before_crossing();
  }
  void lend_scratch(std::span<std::byte> scratch) noexcept requires HasReplicas<C> {
    inner_->lend_scratch(scratch);
  }

  C& inner() noexcept { return *inner_; }

 protected:
  ~decorator() = default;

 private:
  std::unique_ptr<C> owned_;
  C* inner_;
};

}  // namespace zero::detail
