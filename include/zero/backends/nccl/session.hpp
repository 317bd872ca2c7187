// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <zero/backends/nccl/library.hpp>
#include <zero/backends/nccl/notices.hpp>
#include <zero/backends/nccl/options.hpp>
#include <zero/backends/nccl/watched.hpp>
#include <zero/cuda/device.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/detail/cuda_try.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// One rank's end of an NCCL communicator: what a program calls, and what its handles call. One
/// thread at a time.
class nccl_session : public nccl_watched {
 public:
  using nccl_watched::nccl_watched;

  bool claim() noexcept { return !claimed_.exchange(true); }
  void unclaim() noexcept { claimed_.store(false); }

  /// Puts a collective into the stream: after what the queue holds now. `call(comm, stream)` calls
  /// the NCCL function that `function` names. Returns the sequence number for the handle.
  template <class Call>
  std::uint64_t issue(collective_call described, const char* function, cuda_queue queue,
                      Call call) {
    cuda_operation operation = begin(described, options_.timeout);
    std::optional<cuda_device_guard> guard;
    guarded(operation, [&] {
      guard.emplace(device_);
      operation.is_captured = is_capturing(queue);
      ready_.record(queue);
      ready_.hold(stream_);
    });
    settle(operation, function, [&](ncclComm_t comm) { return call(comm, stream_.get()); });
    enter_into_flight(operation);
    return operation.sequence;
  }

  /// Splits NCCL's communicator; the part is connected when this returns.
  /// Collective: all ranks.
  ncclComm_t split(int color, cuda_operation& operation) {
    collective_call described;
    described.operation = "split";
    operation = begin(described, options_.setup_timeout);
    std::optional<cuda_device_guard> guard;
    guarded(operation, [&] { guard.emplace(device_); });
    split_result_ = nullptr;
    settle(operation, "ncclCommSplit", [&](ncclComm_t comm) {
      ncclConfig_t config = nccl_config(options_);
      return ncclCommSplit(comm, color, rank_, &split_result_, &config);
    });
    await_part(operation);
    operation.is_captured = true;  // as such a one it is done, and no event belongs to it
    ncclComm_t part = nullptr;
    {
      const std::lock_guard lock(mutex_);
      flight_.enter(operation);
      std::swap(part, part_);
    }
    if (part == nullptr) raise(operation);
    return part;
  }

  /// Blocks the host until the queue is done, or throws what went wrong with the communicator.
  void synchronize(cuda_queue queue) {
    cuda_operation operation{"synchronize", begun_, clock::now(), {}};
    operation.deadline = operation.start + options_.timeout;
    cudaError_t result = cudaErrorNotReady;
    const bool is_in_time = poll_until(operation.deadline, [&] {
      throw_loss(operation);
      result = cudaStreamQuery(queue.stream());
      return result != cudaErrorNotReady;
    });
    // Asked again: a queue is done as well when an abort has ended what it waited for.
    throw_loss(operation);
    if (is_in_time && result == cudaSuccess) return;
    const cuda_operation oldest = oldest_or(operation);
    if (!is_in_time) {
      fail(failure_kind::timeout, oldest, "the queue was not done before the deadline");
    }
    guarded(oldest, [&] { cuda_try(result, "cudaStreamQuery"); });
  }

  /// Throws what went wrong with the communicator, where something was lost by it.
  void check() { throw_loss({"check", begun_, clock::now(), {}}); }

  // What the handle calls.

  void hold(std::uint64_t sequence, cuda_queue queue) {
    auto& slot = flight_.at(sequence);
    if (is_lost(sequence)) raise(slot.operation);
    guarded(slot.operation, [&] {
      const auto hold = [&] { slot.done.hold(queue); };
      // A graph needs every edge while it is captured; later streams know nothing of its events.
      if (slot.operation.is_captured) {
        if (is_capturing(queue)) hold();
        return;
      }
      held_.hold_once(sequence, queue, hold);
    });
  }

  void drain(std::uint64_t sequence) noexcept {
    if (flight_.at(sequence).operation.is_captured) return;
    poll_until(clock::time_point::max(), [&] {
      const std::lock_guard lock(mutex_);
      const bool is_busy = look_at_stream();
      return failure_.has_failed() || !is_busy || flight_.finished() > sequence;
    });
    if (failure_.has_failed()) await_release();
  }

  /// A configuration for a communicator that never blocks.
  static ncclConfig_t nccl_config(const nccl_options& options) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options.min_blocks != 0) config.minCTAs = options.min_blocks;
    if (options.max_blocks != 0) config.maxCTAs = options.max_blocks;
    return config;
  }

 private:
  cuda_operation begin(collective_call& described, std::chrono::nanoseconds timeout) {
    cuda_operation operation{described.operation, begun_++, clock::now(), {}};
    operation.deadline = operation.start + timeout;
    described.sequence = operation.sequence;
    if (failure_.has_failed()) raise(operation);
    if (options_.checked_order) compare_calls(operation, described);
    return operation;
  }

  /// From here on the watcher looks after it.
  void enter_into_flight(const cuda_operation& operation) {
    guarded(operation, [&] {
      // The event that is marked next belongs to an older one until now. A capture forbids to ask.
      if (!operation.is_captured) {
        const std::lock_guard lock(mutex_);
        flight_.oldest();
      }
      flight_.mark(operation.sequence, stream_);
      const std::lock_guard lock(mutex_);
      flight_.enter(operation);
    });
  }

  void compare_calls(const cuda_operation& operation, const collective_call& described) {
    int odd_one = -1;
    std::string difference;
    is_comparing_.store(true);
    try {
      difference = notices_.differing_calls(described, operation.deadline, odd_one, [&] {
        if (failure_.has_failed()) raise(operation);
      });
    } catch (const rendezvous_timeout_error& e) {
      const auto [missing, first] = missing_ranks(operation.sequence);
      fail(failure_kind::timeout, operation,
           missing.empty() ? e.what() : "waited in vain for rank(s) " + missing, first);
    } catch (const rendezvous_error& e) {
      fail(failure_kind::aborted, operation, e.what());
    }
    is_comparing_.store(false);
    if (!difference.empty()) fail(failure_kind::mismatch, operation, difference, odd_one);
  }

  std::pair<std::string, int> missing_ranks(std::uint64_t sequence) {
    try {
      return notices_.missing_calls(sequence);
    } catch (const rendezvous_error&) {
      return {"", -1};
    }
  }

  /// Makes a call of NCCL and polls until it is through. Throws unless it succeeds.
  ///
  /// Even an invalid argument poisons: NCCL has not done anything then, but the peers' collective
  /// with this number would be taken for the next one here.
  template <class Call>
  void settle(const cuda_operation& operation, const char* function, Call call) {
    ncclResult_t result = ncclSuccess;
    bool is_called = false;
    std::string reason;
    const bool is_in_time = poll_until(operation.deadline, [&] {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr || failure_.has_failed()) return true;
      result = is_called ? state_of(comm_) : call(comm_);
      is_called = true;
      if (result == ncclInProgress) return false;
      if (result != ncclSuccess) reason = describe_nccl(function, result, comm_);
      return true;
    });
    // The peer that ended the connection may have said why.
    if (result == ncclRemoteError) look_for_notices(false);
    if (failure_.has_failed()) raise(operation);
    if (!reason.empty()) fail(failure_kind::aborted, operation, reason);
    if (!is_in_time) {
      fail(failure_kind::timeout, operation,
           std::string(function) + " was still in progress at the deadline");
    }
  }

  /// The part that NCCL has made connects by itself.
  void await_part(const cuda_operation& operation) {
    std::string reason;
    {
      const std::lock_guard lock(mutex_);
      part_ = split_result_;  // from here on it is aborted together with this communicator
    }
    const bool is_in_time = poll_until(operation.deadline, [&] {
      const std::lock_guard lock(mutex_);
      if (part_ == nullptr || failure_.has_failed()) return true;
      const ncclResult_t state = state_of(part_);
      if (state == ncclInProgress) return false;
      if (state != ncclSuccess) reason = describe_nccl("ncclCommSplit", state, part_);
      return true;
    });
    if (failure_.has_failed()) raise(operation);
    if (!reason.empty()) fail(failure_kind::aborted, operation, reason);
    if (!is_in_time) {
      fail(failure_kind::timeout, operation, "the part was not connected at the deadline");
    }
  }

  /// Errors of CUDA poison the communicator: its stream may have lost an edge.
  template <class Function>
  void guarded(const cuda_operation& operation, Function function) {
    try {
      function();
    } catch (const cuda_error& e) {
      fail(failure_kind::aborted, operation, e.what());
    }
  }

  cuda_operation oldest_or(const cuda_operation& other) {
    const std::lock_guard lock(mutex_);
    try {
      const cuda_operation* const oldest = flight_.oldest();
      return oldest != nullptr ? *oldest : other;
    } catch (const cuda_error&) {
      return flight_.at(flight_.finished()).operation;
    }
  }

  // Nothing here may throw when it is made: the communicator is owned by then.
  ncclComm_t split_result_ = nullptr;  // NCCL writes it when it pleases
  std::atomic<bool> claimed_{false};
  cuda_held_stream held_;
};

}  // namespace zero::detail
