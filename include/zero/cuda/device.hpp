// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include <zero/detail/cuda_try.hpp>

namespace zero {

/// The CUDA devices of this machine, or why there are none.
struct cuda_devices {
  int count = 0;
  std::string reason;  ///< one line, empty when count > 0
};

/// Never throws for want of a device: any error of the runtime means that there is none.
///
/// A machine without a driver answers with another error than one without a device, so a program
/// that can do without asks here and not for a particular code.
inline cuda_devices cuda_device_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return {count, {}};
  if (result == cudaSuccess) return {0, "no CUDA device: the runtime counts 0 of them"};
  cudaGetLastError();  // it was answered; the next launch must not report it again
  return {0, std::string("no CUDA device: cudaGetDeviceCount: ") + cudaGetErrorName(result) + " (" +
                 std::to_string(static_cast<int>(result)) + "), " + cudaGetErrorString(result)};
}

/// The device of the calling thread. Throws: cuda_error.
inline int current_cuda_device() {
  int device = 0;
  detail::cuda_try(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// Makes a device current for a scope and restores the one before it.
class cuda_device_guard {
 public:
  /// Throws: cuda_error when there is no such device.
  explicit cuda_device_guard(int device) : previous_(current_cuda_device()) {
    if (previous_ == device) return;
    detail::cuda_try(cudaSetDevice(device), "cudaSetDevice");
    is_switched_ = true;
  }
  cuda_device_guard(const cuda_device_guard&) = delete;
  cuda_device_guard& operator=(const cuda_device_guard&) = delete;
  ~cuda_device_guard() {
    if (is_switched_) cudaSetDevice(previous_);
  }

 private:
  int previous_;
  bool is_switched_ = false;
};

}  // namespace zero
