// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include <zero/cuda/device.hpp>
#include <zero/detail/cuda_try.hpp>
#include <zero/error.hpp>
#include <zero/memory.hpp>

namespace zero {

/// Memory of one device, from cudaMalloc.
///
/// Meant for few and large blocks: an engine takes its arena once. Both calls may synchronise with
/// the device.
class cuda_memory final : public memory_resource {
 public:
  /// What cudaMalloc guarantees.
  static constexpr std::uint64_t alignment_bytes = 256;

  /// Throws: cuda_error when there is no such device.
  explicit cuda_memory(int device) : device_(device) { const cuda_device_guard guard(device); }

  int device() const noexcept { return device_; }

  /// Throws: cuda_error, out of memory for one; usage_error beyond the alignment of cudaMalloc.
  void* allocate(std::uint64_t bytes, std::uint64_t alignment) override {
    if (alignment > alignment_bytes) {
      throw usage_error("zero::cuda_memory: an alignment of " + std::to_string(alignment) +
                        " bytes was asked for, cudaMalloc guarantees " +
                        std::to_string(alignment_bytes));
    }
    const cuda_device_guard guard(device_);
    void* pointer = nullptr;
    const std::string operation =
        "cudaMalloc of " + std::to_string(bytes) + " bytes on device " + std::to_string(device_);
    detail::cuda_try(cudaMalloc(&pointer, static_cast<std::size_t>(bytes)), operation.c_str());
    return pointer;
  }

  void deallocate(void* pointer, std::uint64_t /*bytes*/,
                  std::uint64_t /*alignment*/) noexcept override {
    cudaFree(pointer);  // it finds the device by the address
  }

 private:
  int device_;
};

}  // namespace zero
