// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include <zero/error.hpp>

namespace zero::detail {

enum class failure_kind : std::uint32_t { none, aborted, mismatch, timeout };

/// Why a communicator failed: the first cause is kept, every later one is dropped. Any thread.
class first_failure {
 public:
  /// Returns true when this was the first. `peer` is the rank to blame, -1 where it is unknown.
  bool record(failure_kind kind, int peer, std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (kind_.load(std::memory_order_relaxed) != failure_kind::none) return false;
    peer_ = peer;
    try {
      reason_ = reason;
    } catch (...) {
      reason_.clear();  // no memory for the text: the kind and the rank still stand
    }
    kind_.store(kind, std::memory_order_release);
    return true;
  }

  bool record(const communicator_error& error) noexcept {
    return record(kind_of(error), error.failure().peer, error.reason());
  }

  bool has_failed() const noexcept {
    return kind_.load(std::memory_order_acquire) != failure_kind::none;
  }

  /// Requires: has_failed(). Throws the first cause as seen from `where`, whose peer is filled in.
  [[noreturn]] void raise(communicator_failure where) const {
    const std::lock_guard lock(mutex_);
    where.peer = peer_;
    switch (kind_.load(std::memory_order_relaxed)) {
      case failure_kind::mismatch:
        throw mismatch_error(reason_, where);
      case failure_kind::timeout:
        throw timeout_error(reason_, where);
      default:
        throw aborted_error(reason_, where);
    }
  }

  struct cause {
    failure_kind kind;
    int peer;
    std::string reason;
  };
  /// Requires: has_failed().
  cause first() const {
    const std::lock_guard lock(mutex_);
    return {kind_.load(std::memory_order_relaxed), peer_, reason_};
  }

  static failure_kind kind_of(const communicator_error& error) noexcept {
    if (dynamic_cast<const mismatch_error*>(&error) != nullptr) return failure_kind::mismatch;
    if (dynamic_cast<const timeout_error*>(&error) != nullptr) return failure_kind::timeout;
    return failure_kind::aborted;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<failure_kind> kind_{failure_kind::none};
  int peer_ = -1;
  std::string reason_;
};

}  // namespace zero::detail
