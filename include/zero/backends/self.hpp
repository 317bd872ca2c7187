// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include <zero/communicator.hpp>
#include <zero/detail/collective_checks.hpp>
#include <zero/detail/completed_work.hpp>
#include <zero/error.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/range.hpp>

namespace zero {

/// The communicator of a program with one rank: copies, or nothing at all in place.
///
/// It allocates nothing and never waits. After abort() every collective throws aborted_error.
class self_communicator {
 public:
  using memory_space = host_space;
  using queue = host_queue;
  using work = detail::completed_work;

  static constexpr summation sums = summation::rank_tree;
  static constexpr std::string_view backend_name() noexcept { return "self"; }

  self_communicator() noexcept = default;
  self_communicator(const self_communicator&) = delete;
  self_communicator& operator=(const self_communicator&) = delete;

  int rank() const noexcept { return 0; }
  int size() const noexcept { return 1; }

  /// Any thread, any number of times; the first reason is kept.
  void abort(std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (aborted_.load()) return;
    try {
      reason_ = reason;
    } catch (...) {
      reason_.clear();  // no memory for the text: the abort still stands
    }
    aborted_.store(true);
  }

  bool claim() noexcept { return !claimed_.exchange(true); }
  void unclaim() noexcept { claimed_.store(false); }

  /// The sum over one rank is the input, times options.scale.
  template <detail::SummableElement T, detail::SumOutputOf<T> U>
  work reduce_scatter(range<const T, partial> in, range<U, shard> out, reduce_options options = {},
                      queue = {}) {
    detail::check_full_and_shard(call_site("reduce_scatter"), in.data(), in.size(), out.data(),
                                 out.size());
    begin("reduce_scatter");
    const bool in_place = static_cast<const void*>(in.data()) == out.data();
    if (in_place && options.scale == 1.0F) return {};
    const T* const only = in.data();
    kernels::fold(host_space{}, std::span<const T* const>(&only, 1), out.data(), out.size(),
                  options.scale);
    return {};
  }

  template <detail::TransferableElement T>
  work all_gather(range<const T, shard> in, range<T, full> out, queue = {}) {
    detail::check_full_and_shard(call_site("all_gather"), out.data(), out.size(), in.data(),
                                 in.size());
    begin("all_gather");
    if (!in.empty() && in.data() != out.data()) {
      std::memmove(out.data(), in.data(), in.size() * sizeof(T));
    }
    return {};
  }

  work all_reduce(range<double, full> values, queue = {}) {
    detail::check_values(call_site("all_reduce"), values.data(), values.size());
    begin("all_reduce");
    return {};
  }

  template <detail::TransferableElement T>
  work broadcast(range<T, full> values, int root, queue = {}) {
    detail::check_values(call_site("broadcast"), values.data(), values.size());
    detail::check_root(call_site("broadcast"), root);
    begin("broadcast");
    return {};
  }

  self_communicator split(int /*color*/) {
    begin("split");
    return {};
  }

 private:
  detail::checked_call call_site(std::string_view operation) const noexcept {
    return {backend_name(), 0, 1, operation};
  }

  void begin(std::string_view operation) {
    const auto sequence = next_sequence_++;
    if (!aborted_.load()) return;
    const std::lock_guard lock(mutex_);
    throw aborted_error(reason_, {.backend = "self",
                                  .rank = 0,
                                  .peer = 0,
                                  .operation = std::string(operation),
                                  .sequence = sequence});
  }

  std::atomic<bool> claimed_{false};
  std::atomic<bool> aborted_{false};
  std::uint64_t next_sequence_ = 0;
  std::mutex mutex_;
  std::string reason_;
};

static_assert(Communicator<self_communicator, float> && CanSplit<self_communicator>);
static_assert(CanReduceScatter<self_communicator, bfloat16, float>);
static_assert(CanAllGather<self_communicator, std::uint16_t>);

}  // namespace zero
