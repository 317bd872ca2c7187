// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include <zero/cuda/memory.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/detail/cuda_try.hpp>

#include "unit/kernels/cuda_cases.hpp"

#if defined(ZERO_TEST_SIMULATED)
#include "support/simulated_device/kernels.hpp"
#endif

// Memory of device 0 for the tests of kernels. All copies go through the stream of the kernels.

namespace gpu_tests {

#if defined(ZERO_TEST_SIMULATED)
inline constexpr bool is_simulated = true;
#else
inline constexpr bool is_simulated = false;
#endif

/// Elements at 256 bytes, not initialised. Throws: cuda_error.
template <class T>
class device_array {
 public:
  device_array(std::uint64_t count, const zero::unique_cuda_stream& stream)
      : stream_(stream.get()), count_(count), memory_(allocate(count)) {}
  device_array(std::span<const T> values, const zero::unique_cuda_stream& stream)
      : device_array(values.size(), stream) {
    write(0, values);
  }

  T* data() const noexcept { return memory_.get(); }
  std::uint64_t size() const noexcept { return count_; }

  /// Sets the elements from `first` on; `values` may change again when it returns.
  void write(std::uint64_t first, std::span<const T> values) {
    copy(data() + first, values.data(), values.size(), cudaMemcpyHostToDevice);
  }
  /// The elements from `first` on, after all that the stream holds; they have arrived when it
  /// returns.
  void read(std::uint64_t first, std::span<T> values) const {
    copy(values.data(), data() + first, values.size(), cudaMemcpyDeviceToHost);
    zero::detail::cuda_try(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  T read_one() const {
    T value;
    read(0, {&value, 1});
    return value;
  }
  /// Sets every byte.
  void fill_bytes(int value) {
    zero::detail::cuda_try(
        cudaMemsetAsync(data(), value, static_cast<std::size_t>(count_) * sizeof(T), stream_),
        "cudaMemsetAsync");
  }

 private:
  struct free_memory {
    void operator()(T* pointer) const noexcept { cudaFree(pointer); }
  };
  using owner = std::unique_ptr<T, free_memory>;

  static owner allocate(std::uint64_t count) {
    if (count == 0) return owner();
    return owner(static_cast<T*>(
        zero::cuda_memory(0).allocate(count * sizeof(T), zero::cuda_memory::alignment_bytes)));
  }
  void copy(T* to, const T* from, std::size_t count, cudaMemcpyKind kind) const {
    if (count == 0) return;
    zero::detail::cuda_try(cudaMemcpyAsync(to, from, count * sizeof(T), kind, stream_),
                           "cudaMemcpyAsync");
  }

  cudaStream_t stream_;
  std::uint64_t count_;
  owner memory_;
};

/// A buffer of the host on the device, guards included, at the same offset from 256 bytes.
template <class T>
class device_copy {
 public:
  device_copy(kernel_tests::buffer<T>& host, const zero::unique_cuda_stream& stream)
      : host_(&host), device_(std::span<const T>(host.storage()), stream) {}

  T* data() const noexcept { return device_.data() + host_->offset(); }
  /// Replaces what the host has, after all that the stream holds.
  void copy_back() const { device_.read(0, host_->storage()); }

 private:
  kernel_tests::buffer<T>* host_;
  device_array<T> device_;
};

/// Element counts: all small ones, around chunks and blocks, and a large odd one. Fewer where
/// ZERO_GPU_REDUCED is set, as under compute-sanitizer.
inline std::vector<std::uint64_t> sizes() {
  if (std::getenv("ZERO_GPU_REDUCED") != nullptr) return {0, 1, 7, 8, 9, 67, 1025};
  std::vector<std::uint64_t> result;
  for (std::uint64_t size = 0; size <= 70; ++size) result.push_back(size);
  for (const std::uint64_t size : {1023U, 1024U, 1025U, 4095U, 4096U, 4097U, 1000003U}) {
    result.push_back(size);
  }
  return result;
}

}  // namespace gpu_tests
