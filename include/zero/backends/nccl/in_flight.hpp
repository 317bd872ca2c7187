// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_operations.hpp>

namespace zero::detail {

/// The collectives that one communicator has put into its stream, oldest first.
///
/// It does not lock: one thread at a time calls it, but for `mark`, which only the issuing thread
/// calls, at any time.
class nccl_in_flight {
 public:
  /// Sequence numbers below it are in the stream.
  std::uint64_t issued() const noexcept { return issued_; }
  /// And below this one, done, as far as it was looked.
  std::uint64_t finished() const noexcept { return finished_; }

  cuda_operation_ring::slot& at(std::uint64_t sequence) noexcept { return ring_.at(sequence); }

  /// The oldest collective that the device has not finished; null when there is none. What was
  /// captured into a graph is not in the stream, nor is what is done on the host.
  /// Throws: cuda_error; finished() then tells the collective that was asked about.
  const cuda_operation* oldest() {
    // Slots are used again: of what is older than the ring nothing is known, but that it is done
    // when its successor is.
    if (issued_ > slots) finished_ = std::max(finished_, issued_ - slots);
    for (; finished_ < issued_; ++finished_) {
      const auto& slot = ring_.at(finished_);
      if (!slot.operation.is_captured && !slot.done.is_done()) return &slot.operation;
    }
    return nullptr;
  }

  /// Marks the end of a collective in the stream. It may block while the stream takes nothing more,
  /// so nobody may be kept from ending that meanwhile. Throws: cuda_error.
  void mark(std::uint64_t sequence, cuda_queue stream) { ring_.at(sequence).done.record(stream); }

  /// From here on it counts. Comes after its mark, if there is one.
  void enter(const cuda_operation& operation) noexcept {
    ring_.at(operation.sequence).operation = operation;
    issued_ = operation.sequence + 1;
  }

 private:
  static constexpr std::uint64_t slots = cuda_operation_ring::slots;

  cuda_operation_ring ring_;
  std::uint64_t issued_ = 0;
  std::uint64_t finished_ = 0;
};

}  // namespace zero::detail
