// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <zero/detail/cuda_try.hpp>

namespace zero {

/// Owns an array in page-locked host memory, which devices copy from and to without a detour.
template <class T>
class unique_cuda_pinned {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  unique_cuda_pinned() noexcept = default;
  /// The elements are not initialised. Throws: cuda_error.
  explicit unique_cuda_pinned(std::uint64_t count) {
    void* pointer = nullptr;
    detail::cuda_try(cudaMallocHost(&pointer, static_cast<std::size_t>(count) * sizeof(T)),
                     "cudaMallocHost");
    data_ = static_cast<T*>(pointer);
  }
  unique_cuda_pinned(unique_cuda_pinned&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)) {}
  unique_cuda_pinned& operator=(unique_cuda_pinned&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~unique_cuda_pinned() {
    if (data_ != nullptr) cudaFreeHost(data_);
  }

  T* data() const noexcept { return data_; }

 private:
  T* data_ = nullptr;
};

}  // namespace zero
