// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <zero/backends/nccl/library.hpp>
#include <zero/backends/nccl/notices.hpp>
#include <zero/backends/nccl/options.hpp>
#include <zero/cuda/device.hpp>
#include <zero/cuda/event.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/detail/cuda_try.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// One connected NCCL communicator of one rank: its stream, its events, and who watches over it.
///
/// NCCL's calls do not block and its kernels wait for peers on the device, so no call of a program
/// may ever notice that a peer is gone. A thread watches: it polls NCCL's asynchronous error, the
/// deadlines of what is in the stream, and the peers' notices in the store. What it finds poisons
/// the communicator and aborts NCCL, which ends the kernels, so streams and hosts go on.
///
/// NCCL allows one thread at a time in a communicator: `mutex_` is held during each of its calls,
/// and never while anything is waited for.
class nccl_session {
 public:
  using clock = cuda_operation::clock;

  /// Takes over a connected communicator. Starts to watch.
  nccl_session(ncclComm_t comm, nccl_notices notices, int rank, int size, int device, int version,
               const nccl_options& options)
      : comm_(comm),
        notices_(std::move(notices)),
        rank_(rank),
        size_(size),
        device_(device),
        version_(version),
        options_(options) {
    watcher_ = std::thread([this] { watch(); });
  }
  nccl_session(const nccl_session&) = delete;
  nccl_session& operator=(const nccl_session&) = delete;

  ~nccl_session() {
    stop_watching();
    if (!failure_.has_failed() && has_finished()) {
      leave();
    } else {
      failure_.record(failure_kind::aborted, rank_, "its communicator was destroyed");
      const std::unique_lock lock(mutex_);
      abort_family();
    }
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int device() const noexcept { return device_; }
  int version() const noexcept { return version_; }
  const nccl_options& options() const noexcept { return options_; }
  nccl_notices& notices() noexcept { return notices_; }

  bool claim() noexcept { return !claimed_.exchange(true); }
  void unclaim() noexcept { claimed_.store(false); }

  /// Any thread. Never blocks: the watcher does the rest.
  void abort(std::string_view reason) noexcept {
    failure_.record(failure_kind::aborted, rank_, reason);
    wake_.notify_all();
  }

  /// Puts a collective into the stream: after what the queue holds now. `call(comm, stream)` calls
  /// the NCCL function that `function` names. Returns the sequence number for the handle.
  template <class Call>
  std::uint64_t issue(collective_call described, const char* function, cuda_queue queue,
                      Call call) {
    cuda_operation operation = begin(described, options_.timeout);
    const cuda_device_guard guard(device_);
    guarded(operation, [&] {
      cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
      cuda_try(cudaStreamIsCapturing(queue.stream(), &capture), "cudaStreamIsCapturing");
      operation.is_captured = capture != cudaStreamCaptureStatusNone;
      ready_.record(queue);
      ready_.hold(stream_);
    });
    settle(operation, function, [&](ncclComm_t comm) { return call(comm, stream_.get()); });
    guarded(operation, [&] { enter_into_ring(operation); });
    return operation.sequence;
  }

  /// Splits NCCL's communicator; the part is connected when this returns.
  /// Collective: all ranks.
  ncclComm_t split(int color, cuda_operation& operation) {
    collective_call described;
    described.operation = "split";
    operation = begin(described, options_.setup_timeout);
    const cuda_device_guard guard(device_);
    split_result_ = nullptr;
    settle(operation, "ncclCommSplit", [&](ncclComm_t comm) {
      ncclConfig_t config = nccl_config(options_);
      return ncclCommSplit(comm, color, rank_, &split_result_, &config);
    });
    ncclResult_t state = ncclInProgress;
    const bool is_in_time = poll_until(operation.deadline, [&] {
      const ncclResult_t result = ncclCommGetAsyncError(split_result_, &state);
      if (result != ncclSuccess) state = result;
      return state != ncclInProgress || failure_.has_failed();
    });
    if (state == ncclSuccess) {
      guarded(operation, [&] { enter_into_ring(operation); });
      return split_result_;
    }
    const std::string reason = describe_nccl("ncclCommSplit", state, split_result_);
    ncclCommAbort(split_result_);
    if (!is_in_time) fail(failure_kind::timeout, operation, reason);
    fail(failure_kind::aborted, operation, reason);
  }

  /// An abort of this communicator reaches the part.
  void adopt(const std::shared_ptr<nccl_session>& part) {
    const std::lock_guard lock(mutex_);
    std::erase_if(parts_, [](const auto& weak) { return weak.expired(); });
    parts_.push_back(part);
  }

  /// Blocks the host until the queue is done, or throws what went wrong with the communicator.
  void synchronize(cuda_queue queue) {
    cuda_operation operation;
    operation.name = "synchronize";
    operation.sequence = next_sequence_;
    operation.start = clock::now();
    cudaError_t result = cudaErrorNotReady;
    const bool is_in_time = poll_until(operation.start + options_.timeout, [&] {
      if (failure_.has_failed()) return true;
      result = cudaStreamQuery(queue.stream());
      return result != cudaErrorNotReady;
    });
    if (failure_.has_failed()) raise(operation);
    if (!is_in_time) {
      fail(failure_kind::timeout, operation, "the queue was not done before the deadline");
    }
    guarded(operation, [&] { cuda_try(result, "cudaStreamQuery"); });
  }

  // What the handle calls.

  void hold(std::uint64_t sequence, cuda_queue queue) {
    auto& slot = ring_.at(sequence);
    if (failure_.has_failed()) raise(slot.operation);
    look_for_asynchronous_error();
    if (failure_.has_failed()) raise(slot.operation);
    guarded(slot.operation, [&] { slot.done.hold(queue); });
  }

  void drain(std::uint64_t sequence) noexcept {
    auto& slot = ring_.at(sequence);
    if (slot.operation.is_captured) return;
    const bool is_in_time = poll_until(slot.operation.deadline, [&] {
      if (failure_.has_failed()) return true;
      try {
        return slot.done.is_done();
      } catch (const std::exception& e) {
        abort(e.what());
        return true;
      }
    });
    if (!is_in_time) record_timeout();
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
  /// How long a destructor lets the stream finish before it aborts.
  static constexpr std::chrono::seconds farewell{5};

  cuda_operation begin(collective_call& described, std::chrono::nanoseconds timeout) {
    cuda_operation operation;
    operation.name = described.operation;
    operation.sequence = described.sequence = next_sequence_++;
    operation.start = clock::now();
    operation.deadline = operation.start + timeout;
    if (failure_.has_failed()) raise(operation);
    if (options_.checked_order) compare_calls(operation, described);
    return operation;
  }

  /// From here on the watcher looks after it.
  void enter_into_ring(const cuda_operation& operation) {
    const std::lock_guard lock(mutex_);
    auto& slot = ring_.at(operation.sequence);
    slot.operation = operation;
    slot.done.record(stream_);
    issued_ = operation.sequence + 1;
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
      fail(failure_kind::timeout, operation, e.what());
    } catch (const rendezvous_error& e) {
      fail(failure_kind::aborted, operation, e.what());
    }
    is_comparing_.store(false);
    if (difference.empty()) return;
    failure_.record(failure_kind::mismatch, odd_one, difference);
    wake_.notify_all();
    raise(operation);
  }

  /// Makes a call of NCCL and polls until it is through. Throws unless it succeeds.
  template <class Call>
  void settle(const cuda_operation& operation, const char* function, Call call) {
    ncclResult_t result = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) raise(operation);
      result = call(comm_);
      // NCCL has not touched anything and stays usable; only its words tell more than ours.
      if (result == ncclInvalidArgument) {
        throw communicator_error(describe_nccl(function, result, comm_),
                                 operation.where("nccl", rank_));
      }
    }
    std::string reason;
    const bool is_in_time = poll_until(operation.deadline, [&] {
      if (result == ncclSuccess) return true;
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr || failure_.has_failed()) return true;
      if (result == ncclInProgress) {
        const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
        if (asked != ncclSuccess) result = asked;
      }
      if (result == ncclInProgress || result == ncclSuccess) return result == ncclSuccess;
      reason = describe_nccl(function, result, comm_);
      return true;
    });
    if (failure_.has_failed()) raise(operation);
    if (!reason.empty()) fail(failure_kind::aborted, operation, reason);
    if (!is_in_time) {
      fail(failure_kind::timeout, operation,
           std::string(function) + " was still in progress at the deadline");
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

  /// The rank that sees a failure first says what it saw; later calls and peers are aborted by it.
  [[noreturn]] void fail(failure_kind kind, const cuda_operation& operation,
                         const std::string& reason) {
    const bool is_first = failure_.record(kind, kind == failure_kind::timeout ? -1 : rank_, reason);
    wake_.notify_all();
    if (is_first && kind == failure_kind::aborted) {
      throw communicator_error(reason, operation.where("nccl", rank_));
    }
    raise(operation);
  }

  [[noreturn]] void raise(const cuda_operation& operation) const {
    failure_.raise(operation.where("nccl", rank_));
  }

  // The watcher.

  void watch() noexcept {
    // It asks about events while another thread may capture a graph, which forbids that by default.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaSetDevice(device_);
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      wake_.wait_for(lock, options_.watch_interval,
                     [&] { return is_stopping_ || (failure_.has_failed() && comm_ != nullptr); });
      if (is_stopping_) return;
      if (failure_.has_failed()) {
        abort_family();
        continue;
      }
      const bool is_stuck = look_at_stream();
      lock.unlock();
      look_for_asynchronous_error();
      look_for_notices(is_stuck || is_comparing_.load());
      lock.lock();
    }
  }

  /// Returns whether something is in the stream. The caller holds the mutex.
  bool look_at_stream() noexcept {
    try {
      while (finished_ < issued_) {
        auto& slot = ring_.at(finished_);
        if (!slot.operation.is_captured && !slot.done.is_done()) {
          if (clock::now() >= slot.operation.deadline) record_timeout();
          return true;
        }
        ++finished_;
      }
    } catch (const std::exception& e) {
      failure_.record(failure_kind::aborted, rank_, e.what());
    }
    return false;
  }

  void record_timeout() noexcept {
    failure_.record(failure_kind::timeout, -1,
                    "the device had not finished it at the deadline: a rank did not call it, or "
                    "has more work before it than the timeout allows");
    wake_.notify_all();
  }

  void look_for_asynchronous_error() noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || comm_ == nullptr) return;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess || state == ncclInProgress) return;
    try {
      failure_.record(failure_kind::aborted, rank_,
                      describe_nccl("asynchronous error", state, comm_));
    } catch (...) {
      failure_.record(failure_kind::aborted, rank_, "asynchronous error");
    }
    wake_.notify_all();
  }

  /// A store that cannot be reached any more is no failure: its host may have ended in good order.
  void look_for_notices(bool is_waiting) noexcept {
    try {
      if (const auto peer = notices_.published_failure()) {
        failure_.record(peer->kind, peer->peer, peer->reason);
      }
      const auto left = is_waiting ? notices_.departure() : std::nullopt;
      // Only what the peer took no part in is lost.
      if (left && left->first != rank_ && left->second <= finished_) {
        failure_.record(
            failure_kind::aborted, left->first,
            "rank " + std::to_string(left->first) + " left: its communicator was destroyed");
      }
    } catch (const std::exception&) {  // NOLINT: said above
    }
  }

  void stop_watching() noexcept {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    wake_.notify_all();
    watcher_.join();
  }

  /// Aborts this communicator and its parts together, and tells the peers. Aborts one by one can
  /// wait for each other's kernels. The caller holds the mutex.
  void abort_family() noexcept {
    const bool is_grouped = version_ >= nccl_group_abort_version && !parts_.empty();
    if (is_grouped) ncclGroupStart();
    abort_here_and_below();
    if (is_grouped) ncclGroupEnd();
  }

  void abort_here_and_below() noexcept {
    for (const auto& weak : parts_) {
      const auto part = weak.lock();
      if (!part) continue;
      part->take_over(failure_);
      const std::lock_guard lock(part->mutex_);
      part->abort_here_and_below();
    }
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    try {
      auto cause = failure_.first();
      if (cause.peer < 0) cause.peer = rank_;
      notices_.publish_failure(cause);
    } catch (const std::bad_alloc&) {  // peers learn of it at their deadlines
    }
  }

  void take_over(const first_failure& failure) noexcept {
    try {
      failure_.record(failure_kind::aborted, -1, failure.first().reason);
    } catch (const std::bad_alloc&) {
      failure_.record(failure_kind::aborted, -1, "");
    }
  }

  /// Whether everything in the stream is done, or gets done soon.
  bool has_finished() noexcept {
    return poll_until(clock::now() + farewell, [&] {
      const std::lock_guard lock(mutex_);
      return !look_at_stream() || failure_.has_failed();
    });
  }

  void leave() noexcept {
    notices_.publish_departure(next_sequence_);
    ncclResult_t state = ncclCommFinalize(comm_);
    poll_until(clock::now() + farewell, [&] {
      if (state != ncclInProgress) return true;
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) state = ncclInternalError;
      return state != ncclInProgress;
    });
    if (state == ncclSuccess) {
      ncclCommDestroy(comm_);
    } else {
      ncclCommAbort(comm_);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  ncclComm_t comm_;                    // null once it was aborted
  ncclComm_t split_result_ = nullptr;  // NCCL writes it when it pleases
  nccl_notices notices_;
  int rank_;
  int size_;
  int device_;
  int version_;
  nccl_options options_;
  unique_cuda_stream stream_{cuda_priority::highest};
  unique_cuda_event ready_;
  cuda_operation_ring ring_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t issued_ = 0;    // sequence numbers below it are in the stream
  std::uint64_t finished_ = 0;  // and below this one, done
  first_failure failure_;
  std::atomic<bool> claimed_{false};
  std::atomic<bool> is_comparing_{false};
  std::vector<std::weak_ptr<nccl_session>> parts_;
  bool is_stopping_ = false;
  std::thread watcher_;
};

}  // namespace zero::detail
