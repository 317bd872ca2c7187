// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_try.hpp>

namespace zero {

/// How urgent the work of a stream is where it competes for a device.
enum class cuda_priority { usual, highest };

/// Owns a stream of the device that was current when it was made.
///
/// It does not synchronise with the legacy default stream. Its destructor does not wait: what was
/// enqueued still runs.
class unique_cuda_stream {
 public:
  /// Throws: cuda_error.
  explicit unique_cuda_stream(cuda_priority priority = cuda_priority::usual) {
    int least = 0;
    int greatest = 0;
    if (priority == cuda_priority::highest) {
      detail::cuda_try(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                       "cudaDeviceGetStreamPriorityRange");
    }
    detail::cuda_try(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                     "cudaStreamCreateWithPriority");
  }
  unique_cuda_stream(unique_cuda_stream&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)) {}
  unique_cuda_stream& operator=(unique_cuda_stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~unique_cuda_stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  cudaStream_t get() const noexcept { return stream_; }
  operator cuda_queue() const { return stream_; }  // NOLINT: implicit by design

  /// Blocks the host until all that was enqueued is done. Throws: cuda_error.
  void synchronize() const {
    detail::cuda_try(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace zero
