// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <zero/error.hpp>

namespace zero {

/// The user's stream, as communicators and engines of CUDA devices take it.
///
/// It borrows the stream and is always said: it has no default, and the null handle is refused,
/// because what it means depends on how a file was compiled. Who wants one of the default streams
/// passes cudaStreamLegacy or cudaStreamPerThread.
class cuda_queue {
 public:
  /// Throws: usage_error for the null handle.
  cuda_queue(cudaStream_t stream) : stream_(stream) {  // NOLINT: implicit by design
    if (stream == nullptr) {
      throw usage_error(
          "zero::cuda_queue: a null stream; pass the stream that your work is in, or name "
          "cudaStreamLegacy or cudaStreamPerThread");
    }
  }
  cuda_queue(std::nullptr_t) = delete;

  cudaStream_t stream() const noexcept { return stream_; }

 private:
  cudaStream_t stream_;
};

}  // namespace zero
