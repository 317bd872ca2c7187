// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include <zero/adapters/thrust/range.hpp>
#include <zero/error.hpp>
#include <zero/range.hpp>

namespace zero {
namespace detail {

/// What both forms of a copy share, with a queue and without: the checks, and the bytes.
template <class T, class U>
std::size_t thrust_copy_bytes(const char* operation, std::uint64_t from, std::uint64_t to) {
  static_assert(
      std::is_same_v<std::remove_const_t<T>, std::remove_const_t<U>>,
      "zero: a copy between a range and a vector needs one element type (it moves bytes)");
  static_assert(std::is_trivially_copyable_v<T>);
  if (from != to) {
    throw usage_error("zero::" + std::string(operation) + ": " + std::to_string(from) +
                      " elements into room for " + std::to_string(to));
  }
  return static_cast<std::size_t>(from) * sizeof(T);
}

/// Neither side may be device memory, whose copies are ordered in a queue.
template <class Space, class Vector>
constexpr void require_thrust_host_copy() {
  using memory = thrust_memory<decltype(std::declval<Vector&>().begin())>;
  static_assert(std::is_same_v<Space, host_space> && memory::is_on_host,
                "zero: device memory is copied in a queue, so name one (copy_to_vector(range, "
                "vector, queue), copy_from_vector(vector, range, queue))");
}

}  // namespace detail

/// Copies a range into a vector that has as many elements; both lie on the host.
///
/// The vector keeps its size: one that was meant for another range is an error, not resized.
/// Throws: usage_error when the sizes differ, before anything is copied.
template <class T, class Role, class Space, class Vector>
void copy_to_vector(range<T, Role, Space> from, Vector& to) {
  detail::require_thrust_host_copy<Space, Vector>();
  auto* const target = detail::thrust_address(to.begin());
  const std::size_t bytes = detail::thrust_copy_bytes<T, std::remove_pointer_t<decltype(target)>>(
      "copy_to_vector", from.size(), to.size());
  // The vector may hold the range itself, and an empty one has no address.
  if (bytes != 0) std::memmove(static_cast<void*>(target), from.data(), bytes);
}

/// Copies a vector into a range that has as many elements; both lie on the host.
///
/// Throws: usage_error when the sizes differ, before anything is copied.
template <class Vector, class T, class Role, class Space>
void copy_from_vector(const Vector& from, range<T, Role, Space> to) {
  detail::require_thrust_host_copy<Space, const Vector>();
  const auto* const source = detail::thrust_address(from.begin());
  const std::size_t bytes = detail::thrust_copy_bytes<T, std::remove_pointer_t<decltype(source)>>(
      "copy_from_vector", from.size(), to.size());
  if (bytes != 0) std::memmove(static_cast<void*>(to.data()), source, bytes);
}

}  // namespace zero
