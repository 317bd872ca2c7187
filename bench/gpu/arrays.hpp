// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <zero/cuda/memory.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_try.hpp>

namespace gpu_bench {

/// Elements in device memory, not initialised. Throws: cuda_error.
template <class T>
class device_array {
 public:
  explicit device_array(std::uint64_t count)
      : count_(count),
        memory_(static_cast<T*>(zero::cuda_memory(0).allocate(
            count * sizeof(T), zero::cuda_memory::alignment_bytes))) {}

  T* data() const noexcept { return memory_.get(); }
  std::uint64_t size() const noexcept { return count_; }

  /// `values` over and over again.
  void fill(const std::vector<T>& values, zero::cuda_queue q) {
    std::uint64_t filled = std::min<std::uint64_t>(values.size(), count_);
    copy(data(), values.data(), filled, cudaMemcpyHostToDevice, q);
    while (filled < count_) {
      const std::uint64_t more = std::min(filled, count_ - filled);
      copy(data() + filled, data(), more, cudaMemcpyDeviceToDevice, q);
      filled += more;
    }
  }

 private:
  struct free_memory {
    void operator()(T* pointer) const noexcept { cudaFree(pointer); }
  };

  static void copy(T* to, const T* from, std::uint64_t count, cudaMemcpyKind kind,
                   zero::cuda_queue q) {
    zero::detail::cuda_try(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T), kind, q.stream()),
        "cudaMemcpyAsync");
  }

  std::uint64_t count_;
  std::unique_ptr<T, free_memory> memory_;
};

/// Values up to `size`, of both signs or not: zeros would take other paths through a division.
template <class T>
std::vector<T> varied_values(float size, bool is_signed) {
  std::vector<T> values(std::size_t{1} << 20U);
  std::uint64_t state = 88172645463325252U;
  for (T& value : values) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    const float unit = static_cast<float>(static_cast<std::int32_t>(state >> 32U)) * 0x1p-31F;
    value = static_cast<T>(size * (is_signed ? unit : std::fabs(unit)));
  }
  return values;
}

}  // namespace gpu_bench
