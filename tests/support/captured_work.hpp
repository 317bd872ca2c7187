// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_try.hpp>

namespace zero::test {

/// What `enqueue()` puts into a stream, as a CUDA graph that can be launched there again and again.
class captured_work {
 public:
  /// Nothing of it runs before launch(). Throws: cuda_error, and what `enqueue` throws.
  captured_work(cuda_queue queue, const std::function<void()>& enqueue) : stream_(queue.stream()) {
    // Of this thread only: what other ranks and watching threads ask the runtime is theirs.
    zero::detail::cuda_try(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                           "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    zero::detail::cuda_try(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    const cudaError_t result = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    zero::detail::cuda_try(result, "cudaGraphInstantiate");
  }
  captured_work(const captured_work&) = delete;
  captured_work& operator=(const captured_work&) = delete;
  ~captured_work() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }

  void launch() {
    zero::detail::cuda_try(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch");
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace zero::test
