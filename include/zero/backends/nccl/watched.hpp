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

#include <zero/backends/nccl/in_flight.hpp>
#include <zero/backends/nccl/library.hpp>
#include <zero/backends/nccl/notices.hpp>
#include <zero/backends/nccl/options.hpp>
#include <zero/cuda/event.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// A connected NCCL communicator, what is in its stream, and a thread that watches over both.
///
/// NCCL's calls do not block and its kernels wait for peers on the device, so no call of a program
/// may ever notice that a peer is gone. The watcher polls NCCL's asynchronous error, the deadlines
/// of what is in the stream, and the peers' notices in the store. What it finds poisons the
/// communicator and aborts NCCL, which ends the kernels, so streams and hosts go on.
///
/// A failure is named after the oldest collective that was not done when it was seen. What was done
/// before stays good, so waits for that succeed.
///
/// NCCL allows one thread at a time in a communicator: `mutex_` is held during each of its calls,
/// and never while anything is waited for. An abort waits for the device, so it comes without the
/// mutex, after the communicator was taken out of `comm_`.
class nccl_watched {
 public:
  using clock = cuda_operation::clock;

  /// Starts to watch. Owns the communicator unless it throws. `whole`: what it was split from.
  nccl_watched(ncclComm_t comm, nccl_notices notices, int rank, int size, int device, int version,
               const nccl_options& options, std::weak_ptr<nccl_watched> whole = {})
      : comm_(comm),
        notices_(std::move(notices)),
        rank_(rank),
        size_(size),
        device_(device),
        version_(version),
        options_(options),
        whole_(std::move(whole)) {
    watcher_ = std::thread([this] { watch(); });
  }
  nccl_watched(const nccl_watched&) = delete;
  nccl_watched& operator=(const nccl_watched&) = delete;

  /// Lets what is in the stream come to its end, or to its deadline: of an abort nobody would hear
  /// any more.
  ~nccl_watched() {
    await_end();
    stop_watching();
    if (!failure_.has_failed()) {
      leave();
    } else {
      std::unique_lock lock(mutex_);
      if (has_something_to_abort()) abort_family(lock);
    }
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int device() const noexcept { return device_; }
  int version() const noexcept { return version_; }
  const nccl_options& options() const noexcept { return options_; }
  nccl_notices& notices() noexcept { return notices_; }

  /// Any thread. Does not wait for the device: the watcher does the rest.
  void abort(std::string_view reason) noexcept { record(failure_kind::aborted, rank_, reason); }

  /// An abort of this communicator reaches the part.
  void adopt(const std::shared_ptr<nccl_watched>& part) {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(parts_, [](const auto& weak) { return weak.expired(); });
      parts_.push_back(part);
      if (!failure_.has_failed()) return;
    }
    part->abort(failure_.first().reason);
  }

 protected:
  static ncclResult_t state_of(ncclComm_t comm) noexcept {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    return asked == ncclSuccess ? state : asked;
  }

  bool record(failure_kind kind, int peer, std::string_view reason) noexcept {
    const bool is_first = failure_.record(kind, peer, reason);
    // The watcher is before its look at the failure, or asleep: it cannot miss the call.
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
    return is_first;
  }

  /// The rank that sees a failure first says what it saw; later calls and peers are aborted by it.
  [[noreturn]] void fail(failure_kind kind, const cuda_operation& operation,
                         const std::string& reason, int peer = -1) {
    bool is_first = false;
    {
      const std::lock_guard lock(mutex_);
      is_first = failure_.record(kind, kind == failure_kind::aborted ? rank_ : peer, reason);
      if (is_first) note_loss(&operation);
    }
    if (!is_first || kind != failure_kind::aborted) raise(operation);
    await_release();
    throw communicator_error(reason, operation.where("nccl", rank_));
  }

  /// Throws the failure, named after what it made impossible: `call` where that is nothing else.
  [[noreturn]] void raise(const cuda_operation& call) {
    await_release();
    failure_.raise(lost_or(call).where("nccl", rank_));
  }

  cuda_operation lost_or(const cuda_operation& call) {
    const std::lock_guard lock(mutex_);
    note_loss();
    if (lost_) return *lost_;
    return *lost_from_ < flight_.issued() ? flight_.at(*lost_from_).operation : call;
  }

  /// Until NCCL has ended its kernels: an exception gives the buffers back.
  void await_release() noexcept {
    std::unique_lock lock(mutex_);
    wake_.notify_all();
    wake_.wait_for(lock, farewell, [&] { return !has_something_to_abort() && aborts_ == 0; });
  }

  bool is_lost(std::uint64_t sequence) {
    if (!failure_.has_failed()) return false;
    const std::lock_guard lock(mutex_);
    note_loss();
    return sequence >= *lost_from_ || flight_.at(sequence).operation.is_captured;
  }

  bool has_lost_something() {
    if (!failure_.has_failed()) return false;
    const std::lock_guard lock(mutex_);
    note_loss();
    return lost_ || *lost_from_ < flight_.issued();
  }

  /// Throws when something was lost here, or in a part, whose collectives a queue may hold as well.
  void throw_loss(const cuda_operation& call) {
    if (has_lost_something()) raise(call);
    std::shared_ptr<nccl_watched> part;  // never dropped under the mutex: it may be the last
    for (std::size_t i = 0;; ++i) {
      part.reset();
      {
        const std::lock_guard lock(mutex_);
        if (i >= parts_.size()) return;
        part = parts_[i].lock();
      }
      if (!part) continue;
      try {
        part->throw_loss(call);
      } catch (const communicator_error&) {
        // Where the whole has failed, that is why, and it knows the rank to blame.
        if (failure_.has_failed()) raise(part->lost_or(call));
        throw;
      }
    }
  }

  /// Returns whether something is in the stream. The caller holds the mutex.
  bool look_at_stream() noexcept {
    try {
      const cuda_operation* const oldest = flight_.oldest();
      if (oldest == nullptr) return false;
      if (clock::now() < oldest->deadline) return true;
      failure_.record(failure_kind::timeout, -1,
                      "the device had not finished it at the deadline: a rank did not call it, or "
                      "has more work before it than the timeout allows");
    } catch (const std::exception& e) {
      failure_.record(failure_kind::aborted, rank_, e.what());
    }
    note_loss();
    return true;
  }

  /// A store that cannot be reached any more is no failure: its host may have ended in good order.
  void look_for_notices(bool is_waiting) noexcept {
    try {
      if (const auto peer = notices_.published_failure()) {
        // The whole hears of it as well, and aborts its family together.
        if (peer->is_inherited && !whole_.expired()) return;
        has_finished(peer->finished, courtesy);
        record(peer->cause.kind, peer->cause.peer, peer->cause.reason);
        return;
      }
      const auto left = is_waiting ? notices_.departure() : std::nullopt;
      // Only what the peer took no part in is lost.
      if (left && left->first != rank_ && has_finished(left->second, {})) {
        record(failure_kind::aborted, left->first,
               "rank " + std::to_string(left->first) + " left: its communicator was destroyed");
      }
    } catch (const std::exception&) {  // NOLINT: said above
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  ncclComm_t comm_;            // null once it was aborted
  ncclComm_t part_ = nullptr;  // made by a split and not handed out yet
  nccl_notices notices_;
  int rank_;
  int size_;
  int device_;
  int version_;
  nccl_options options_;
  unique_cuda_stream stream_{cuda_priority::highest};
  unique_cuda_event ready_;  // of what a collective comes after
  nccl_in_flight flight_;
  std::uint64_t begun_ = 0;  // collectives that this rank has called
  first_failure failure_;
  std::atomic<bool> is_comparing_{false};

 private:
  /// How long NCCL may take to end its kernels, or to let go of its peers in good order.
  static constexpr std::chrono::seconds farewell{5};
  /// How long this rank may take to finish what a failed peer has finished.
  static constexpr std::chrono::seconds courtesy{1};

  /// Keeps what the device has not finished, before an abort makes it look finished. `failed` is
  /// the collective that failed, where that is known. The caller holds the mutex.
  void note_loss(const cuda_operation* failed = nullptr) noexcept {
    if (lost_from_) return;
    const cuda_operation* oldest = nullptr;
    try {
      oldest = flight_.oldest();
    } catch (const std::exception&) {
      oldest = &flight_.at(flight_.finished()).operation;
    }
    lost_from_ = flight_.finished();
    if (failed == nullptr) failed = oldest;
    if (failed != nullptr) lost_ = *failed;
  }

  // The watcher.

  void watch() noexcept {
    // It asks about events while another thread may capture a graph, which forbids that by default.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaSetDevice(device_);
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      wake_.wait_for(lock, options_.watch_interval, [&] {
        return is_stopping_ || (failure_.has_failed() && has_something_to_abort());
      });
      if (is_stopping_) return;
      if (failure_.has_failed()) {
        if (has_something_to_abort()) abort_family(lock);
        continue;
      }
      const bool is_waiting = look_at_stream() || is_comparing_.load();
      lock.unlock();
      // The peer that ended the connection may have said why, so this comes before NCCL's words.
      look_for_notices(is_waiting);
      look_for_asynchronous_error();
      lock.lock();
    }
  }

  void look_for_asynchronous_error() noexcept {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    const ncclResult_t state = state_of(comm_);
    if (state == ncclSuccess || state == ncclInProgress) return;
    try {
      failure_.record(failure_kind::aborted, rank_,
                      describe_nccl("asynchronous error", state, comm_));
    } catch (const std::bad_alloc&) {
      failure_.record(failure_kind::aborted, rank_, "asynchronous error");
    }
  }

  /// Whether the first `count` collectives are done, or get done within `patience`.
  bool has_finished(std::uint64_t count, std::chrono::nanoseconds patience) {
    bool is_finished = false;
    poll_until(clock::now() + patience, [&] {
      const std::lock_guard lock(mutex_);
      look_at_stream();
      is_finished = flight_.finished() >= count;
      return is_finished || is_stopping_ || failure_.has_failed();
    });
    return is_finished;
  }

  void stop_watching() noexcept {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    wake_.notify_all();
    watcher_.join();
  }

  // Aborts.

  bool has_something_to_abort() const noexcept { return comm_ != nullptr || part_ != nullptr; }

  /// A communicator that was taken from its owner.
  struct doomed_communicator {
    nccl_watched* owner;
    ncclComm_t comm;
  };
  /// `parts` keeps the owners alive: under a mutex none may be destroyed.
  struct doomed_family {
    std::vector<std::shared_ptr<nccl_watched>> parts;
    std::vector<doomed_communicator> members;
  };

  /// Aborts this communicator and its parts together: one by one they can wait for each other's
  /// kernels. The peers hear of it first, because what they wait for may take as long. The caller
  /// holds the lock, which is given up meanwhile.
  void abort_family(std::unique_lock<std::mutex>& lock) noexcept {
    doomed_family family;
    try {
      collect(family);
    } catch (const std::bad_alloc&) {  // NOLINT: the parts that are left abort by themselves
    }
    lock.unlock();
    for (const auto& doomed : family.members) doomed.owner->tell_peers(doomed.owner != this);
    const bool is_grouped = version_ >= nccl_group_abort_version && family.members.size() > 1;
    if (is_grouped) ncclGroupStart();
    for (const auto& doomed : family.members) ncclCommAbort(doomed.comm);
    if (is_grouped) ncclGroupEnd();
    for (const auto& doomed : family.members) doomed.owner->end_abort();
    family.parts.clear();
    lock.lock();
  }

  /// The caller holds the mutex.
  void collect(doomed_family& family) {
    note_loss();
    for (ncclComm_t* const comm : {&comm_, &part_}) {
      if (*comm == nullptr) continue;
      family.members.push_back({this, *comm});
      *comm = nullptr;
      ++aborts_;
    }
    for (const auto& weak : parts_) {
      family.parts.emplace_back();
      family.parts.back() = weak.lock();
      nccl_watched* const part = family.parts.back().get();
      if (part == nullptr) continue;
      const std::lock_guard lock(part->mutex_);
      part->failure_.record(failure_kind::aborted, -1, failure_.first().reason);
      part->collect(family);
    }
  }

  void end_abort() noexcept {
    {
      const std::lock_guard lock(mutex_);
      --aborts_;
    }
    wake_.notify_all();
  }

  void tell_peers(bool is_inherited) noexcept {
    try {
      notices_.publish_failure({failure_.first(), *lost_from_, is_inherited});
    } catch (const std::bad_alloc&) {  // NOLINT: peers learn of it at their deadlines
    }
  }

  // The end.

  /// Until nothing is in the stream, or something has failed, by its deadline for one.
  void await_end() noexcept {
    poll_until(clock::time_point::max(), [&] {
      const std::lock_guard lock(mutex_);
      return !look_at_stream() || failure_.has_failed();
    });
  }

  void leave() noexcept {
    notices_.publish_departure(begun_);
    ncclResult_t state = ncclCommFinalize(comm_);
    poll_until(clock::now() + farewell, [&] {
      if (state == ncclInProgress) state = state_of(comm_);
      return state != ncclInProgress;
    });
    if (state == ncclSuccess) {
      ncclCommDestroy(comm_);
    } else {
      ncclCommAbort(comm_);
    }
  }

  // What the failure made impossible: everything in the stream from this number on, and, for its
  // name, the oldest of it.
  std::optional<std::uint64_t> lost_from_;
  std::optional<cuda_operation> lost_;
  int aborts_ = 0;  // in progress
  std::weak_ptr<nccl_watched> whole_;
  std::vector<std::weak_ptr<nccl_watched>> parts_;
  bool is_stopping_ = false;
  std::thread watcher_;
};

}  // namespace zero::detail
