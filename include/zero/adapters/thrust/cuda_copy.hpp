// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#include <zero/adapters/thrust/copy.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_try.hpp>
#include <zero/range.hpp>

namespace zero {
namespace detail {

/// The runtime finds by the addresses which way it goes.
inline void thrust_copy_in_queue(void* to, const void* from, std::size_t bytes, cuda_queue queue) {
  if (bytes == 0) return;
  cuda_try(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue.stream()), "cudaMemcpyAsync");
}

}  // namespace detail

/// Copies a range into a vector that has as many elements, each in host or device memory.
///
/// Stream: ordered in `queue`, does not synchronise. Until the queue has got there, range and
/// vector must stay as they are, and a vector on the host must not be read; both are borrowed
/// until then, so a vector that is resized or destroyed earlier is overrun.
/// Throws: usage_error when the sizes differ, before anything is enqueued; cuda_error.
template <class T, class Role, class Space, class Vector>
void copy_to_vector(range<T, Role, Space> from, Vector& to, cuda_queue queue) {
  auto* const target = detail::thrust_address(to.begin());
  const std::size_t bytes = detail::thrust_copy_bytes<T, std::remove_pointer_t<decltype(target)>>(
      "copy_to_vector", from.size(), to.size());
  detail::thrust_copy_in_queue(target, from.data(), bytes, queue);
}

/// Copies a vector into a range that has as many elements, each in host or device memory.
///
/// Stream: as for copy_to_vector.
/// Throws: usage_error when the sizes differ, before anything is enqueued; cuda_error.
template <class Vector, class T, class Role, class Space>
void copy_from_vector(const Vector& from, range<T, Role, Space> to, cuda_queue queue) {
  const auto* const source = detail::thrust_address(from.begin());
  const std::size_t bytes = detail::thrust_copy_bytes<T, std::remove_pointer_t<decltype(source)>>(
      "copy_from_vector", from.size(), to.size());
  detail::thrust_copy_in_queue(to.data(), source, bytes, queue);
}

}  // namespace zero
