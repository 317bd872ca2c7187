// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_try.hpp>

namespace zero {

/// Owns an event of the device that was current when it was made; it orders and does not time.
class unique_cuda_event {
 public:
  /// Throws: cuda_error.
  unique_cuda_event() {
    detail::cuda_try(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
                     "cudaEventCreateWithFlags");
  }
  unique_cuda_event(unique_cuda_event&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)) {}
  unique_cuda_event& operator=(unique_cuda_event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~unique_cuda_event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  cudaEvent_t get() const noexcept { return event_; }

  /// Marks what is enqueued in the queue now. Throws: cuda_error.
  void record(cuda_queue queue) {
    detail::cuda_try(cudaEventRecord(event_, queue.stream()), "cudaEventRecord");
  }

  /// What is enqueued in the queue from now on runs after the latest mark. Throws: cuda_error.
  void hold(cuda_queue queue) const {
    detail::cuda_try(cudaStreamWaitEvent(queue.stream(), event_, 0), "cudaStreamWaitEvent");
  }

  /// Blocks the host until all that was marked is done. Throws: cuda_error.
  void synchronize() const {
    detail::cuda_try(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }

  /// Whether all that was marked is done. Throws: cuda_error.
  bool is_done() const {
    const cudaError_t result = cudaEventQuery(event_);
    if (result == cudaErrorNotReady) return false;
    detail::cuda_try(result, "cudaEventQuery");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace zero
