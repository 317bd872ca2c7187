// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <zero/cuda/event.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_try.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// One collective that was put into a communicator's stream.
struct cuda_operation {
  using clock = std::chrono::steady_clock;

  std::string_view name;  // static storage
  std::uint64_t sequence = 0;
  clock::time_point start = {};
  clock::time_point deadline = {};
  bool is_captured = false;  // into a graph: its event must not be asked

  double elapsed_seconds() const noexcept {
    return std::chrono::duration<double>(clock::now() - start).count();
  }
  communicator_failure where(std::string_view backend, int rank) const {
    return {.backend = std::string(backend),
            .rank = rank,
            .operation = std::string(name),
            .sequence = sequence,
            .elapsed_seconds = elapsed_seconds()};
  }
};

/// The events that say when the latest collectives of one stream are done.
///
/// A slot serves every size-th collective. The stream runs them in order, so who still waits on a
/// slot that was taken again waits for a later collective, which implies its own: nothing is ever
/// missed, and nothing is allocated.
class cuda_operation_ring {
 public:
  static constexpr std::size_t slots = 64;

  struct slot {
    cuda_operation operation;
    unique_cuda_event done;
  };

  slot& at(std::uint64_t sequence) noexcept { return slots_[sequence % slots]; }

 private:
  std::array<slot, slots> slots_;
};

/// Whether what the queue gets now becomes part of a graph. Throws: cuda_error.
inline bool is_capturing(cuda_queue queue) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_try(cudaStreamIsCapturing(queue.stream(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// What one of the user's streams waits for already.
///
/// A communicator's stream runs in order: who waits for a collective waits for all before it, and a
/// wait for one of those would add nothing. Streams are known by their ids: handles are used again.
class cuda_held_stream {
 public:
  /// Calls `hold()` unless the queue waits for this collective already. Throws: cuda_error.
  template <class Hold>
  void hold_once(std::uint64_t sequence, cuda_queue queue, Hold hold) {
    unsigned long long id = 0;
    cuda_try(cudaStreamGetId(queue.stream(), &id), "cudaStreamGetId");
    if (has_any_ && id == id_ && sequence <= sequence_) return;
    hold();
    has_any_ = true;
    id_ = id;
    sequence_ = sequence;
  }

 private:
  bool has_any_ = false;
  unsigned long long id_ = 0;
  std::uint64_t sequence_ = 0;
};

/// The handle of a collective in a communicator's stream.
///
/// `wait(queue)` makes the queue wait, never the host; it throws what is known to have gone wrong.
/// Dropped without it, the handle waits on the host. It does not outlive its communicator.
///
/// Session: hold(sequence, queue), which throws, and drain(sequence) noexcept.
template <class Session>
class cuda_work {
 public:
  cuda_work() noexcept = default;
  cuda_work(Session& session, std::uint64_t sequence) noexcept
      : session_(&session), sequence_(sequence) {}
  cuda_work(cuda_work&& other) noexcept { swap(other); }
  cuda_work& operator=(cuda_work&& other) noexcept {
    cuda_work old(std::move(*this));
    swap(other);
    return *this;
  }
  ~cuda_work() {
    if (session_ != nullptr && !is_waited_for_) session_->drain(sequence_);
  }

  void wait(cuda_queue queue) {
    if (session_ == nullptr) return;
    // Whatever it throws, the communicator is poisoned then, and nothing is left to wait for.
    is_waited_for_ = true;
    session_->hold(sequence_, queue);
  }

 private:
  void swap(cuda_work& other) noexcept {
    std::swap(session_, other.session_);
    std::swap(sequence_, other.sequence_);
    std::swap(is_waited_for_, other.is_waited_for_);
  }

  Session* session_ = nullptr;
  std::uint64_t sequence_ = 0;
  bool is_waited_for_ = false;
};

/// Calls `is_over` until it says true or the deadline has passed; sleeps longer and longer between.
template <class IsOver>
bool poll_until(cuda_operation::clock::time_point deadline, IsOver is_over) {
  std::chrono::microseconds pause(0);
  constexpr std::chrono::microseconds longest(1000);
  while (!is_over()) {
    if (cuda_operation::clock::now() >= deadline) return false;
    if (pause.count() == 0) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
    }
    pause = pause + pause / 4 + std::chrono::microseconds(1);
    if (pause > longest) pause = longest;
  }
  return true;
}

}  // namespace zero::detail
