// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

namespace zero {

/// Memory that the host can dereference.
struct host_space {};
/// Memory of a CUDA device.
struct cuda_space {};

/// Role: every element of a unit's flat range, all ranks' shards one after the other.
struct full {};
/// Role: the equal part of a full range that one rank owns.
struct shard {};
/// Role: a full range of one rank's own contributions, not yet reduced over the ranks.
struct partial {};

/// Elements in one memory space, with what they mean in their type.
///
/// Roles do not convert into each other, so a norm over unreduced gradients does not compile, and
/// the count is in elements, so a byte count cannot be passed by mistake for a typed pointer.
/// `padding()` says how many of the elements are fill (alignment gaps and the tail that makes the
/// range divisible); it is carried for the accounting only and moves with the rest.
/// Units: elements.
template <class T, class Role, class Space = host_space>
class range {
 public:
  using element_type = T;
  using role = Role;
  using space = Space;

  constexpr range() noexcept = default;
  constexpr range(T* data, std::uint64_t size, std::uint64_t padding = 0) noexcept
      : data_(data), size_(size), padding_(padding) {}

  /// Adds const; nothing else converts.
  template <class U>
    requires(!std::is_same_v<U, T> && std::is_same_v<const U, T>)
  constexpr range(const range<U, Role, Space>& other) noexcept  // NOLINT: implicit by design
      : data_(other.data()), size_(other.size()), padding_(other.padding()) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::uint64_t size() const noexcept { return size_; }
  constexpr std::uint64_t padding() const noexcept { return padding_; }
  constexpr bool empty() const noexcept { return size_ == 0; }

  constexpr T& operator[](std::uint64_t i) const noexcept
    requires std::is_same_v<Space, host_space>
  {
    return data_[i];
  }
  constexpr T* begin() const noexcept
    requires std::is_same_v<Space, host_space>
  {
    return data_;
  }
  constexpr T* end() const noexcept
    requires std::is_same_v<Space, host_space>
  {
    return data_ + size_;
  }
  constexpr operator std::span<T>() const noexcept  // NOLINT: implicit by design
    requires std::is_same_v<Space, host_space>
  {
    return {data_, static_cast<std::size_t>(size_)};
  }

 private:
  T* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t padding_ = 0;
};

}  // namespace zero
