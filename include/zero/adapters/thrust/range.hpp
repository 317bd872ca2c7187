// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include <thrust/device_ptr.h>
#include <thrust/iterator/iterator_traits.h>
#include <thrust/memory.h>
#include <thrust/system/cpp/pointer.h>
#include <thrust/system/cuda/pointer.h>
#include <thrust/type_traits/is_contiguous_iterator.h>

#include <zero/range.hpp>

namespace zero {
namespace detail {

/// Stands for the space of a range where the iterator alone decides it.
struct thrust_deduced_space {};

/// Who can dereference what an iterator of Thrust points to.
///
/// The systems CPP, OMP and TBB work in host memory. An iterator of the CUDA system whose reference
/// is a plain T&, and no proxy that copies, points to managed or pinned memory: both can.
template <class Iterator>
struct thrust_memory {
  using system = typename thrust::iterator_system<Iterator>::type;
  using reference = typename std::iterator_traits<Iterator>::reference;

  static constexpr bool is_contiguous = thrust::is_contiguous_iterator<Iterator>::value;
  static constexpr bool is_on_device =
      std::is_base_of_v<thrust::cuda::execution_policy<system>, system>;
  static constexpr bool is_on_host =
      std::is_base_of_v<thrust::cpp::execution_policy<system>, system> ||
      (is_on_device && std::is_lvalue_reference_v<reference>);
};

/// The space that was asked for, or the only one there is.
template <class Asked, class Iterator>
constexpr auto thrust_space() {
  using memory = thrust_memory<Iterator>;
  constexpr bool is_asked = !std::is_same_v<Asked, thrust_deduced_space>;
  if constexpr (std::is_pointer_v<Iterator>) {
    static_assert(
        !std::is_pointer_v<Iterator>,
        "zero::as_range: a raw pointer does not say where its memory lies (zero::range<T, "
        "Role, Space>{pointer, count} says it)");
  } else if constexpr (!memory::is_contiguous) {
    static_assert(memory::is_contiguous,
                  "zero::as_range: the elements are not contiguous in memory (those of vectors and "
                  "of thrust::device_ptr are)");
  } else if constexpr (!is_asked && memory::is_on_host && memory::is_on_device) {
    static_assert(
        is_asked,
        "zero::as_range: host and device can use universal memory, so the caller says who "
        "does (as_range<Role, zero::host_space> or as_range<Role, zero::cuda_space>)");
  } else if constexpr (std::is_same_v<Asked, host_space> && !memory::is_on_host) {
    static_assert(memory::is_on_host,
                  "zero::as_range: the host cannot dereference device memory (zero::cuda_space)");
  } else if constexpr (std::is_same_v<Asked, cuda_space> && !memory::is_on_device) {
    static_assert(memory::is_on_device,
                  "zero::as_range: this is no memory of a CUDA device (zero::host_space)");
  } else if constexpr (is_asked) {
    return Asked{};
  } else if constexpr (memory::is_on_host) {
    return host_space{};
  } else {
    static_assert(memory::is_on_device,
                  "zero::as_range: memory of a Thrust system that is none of CPP, OMP, TBB, CUDA");
    return cuda_space{};
  }
}

/// The address an iterator of contiguous memory stands at, which need not hold an element.
template <class Iterator>
auto thrust_address(const Iterator& iterator) {
  // A vector's iterator wraps a pointer. To dereference it, as data() of Thrust's vectors does, is
  // undefined in an empty vector.
  if constexpr (requires { iterator.base(); }) {
    return thrust::raw_pointer_cast(iterator.base());
  } else {
    return thrust::raw_pointer_cast(iterator);
  }
}

template <class Role, class Space, class T>
range<T, Role, Space> make_thrust_range(T* data, std::uint64_t count) {
  return {data, count};
}

}  // namespace detail

/// A vector's elements as a range; `Role` says what they mean.
///
/// thrust::host_vector lies in host_space, thrust::device_vector in cuda_space, or in host_space
/// where Thrust's device system is CPP, OMP or TBB. thrust::universal_vector of the CUDA system is
/// both, so there the caller says which: `as_range<zero::shard, zero::cuda_space>(vector)`.
/// Invalidates: whatever moves the vector's elements.
template <class Role, class Space = detail::thrust_deduced_space, class Vector>
auto as_range(Vector& vector) {
  using space = decltype(detail::thrust_space<Space, decltype(vector.begin())>());
  if constexpr (!std::is_void_v<space>) {  // void: it said what is wrong
    return detail::make_thrust_range<Role, space>(detail::thrust_address(vector.begin()),
                                                  vector.size());
  }
}

/// The same for a part of a vector, or for what a thrust::device_ptr points to.
template <class Role, class Space = detail::thrust_deduced_space, class Iterator>
auto as_range(Iterator first, Iterator last) {
  using space = decltype(detail::thrust_space<Space, Iterator>());
  if constexpr (!std::is_void_v<space>) {
    return detail::make_thrust_range<Role, space>(detail::thrust_address(first),
                                                  static_cast<std::uint64_t>(last - first));
  }
}

/// A range in the form that Thrust's algorithms take: iterators that know the memory's system.
///
/// On the host these are pointers, for Thrust's host system; thrust::omp::par and the like take
/// them, too. In cuda_space they are thrust::device_ptr, so that an algorithm without a policy runs
/// on the device, in a default stream; with thrust::cuda::par_nosync.on(stream) it is ordered with
/// the engine's work in that stream.
template <class T, class Space>
class vector_view {
 public:
  using value_type = std::remove_const_t<T>;
  using iterator = std::conditional_t<std::is_same_v<Space, host_space>, T*, thrust::device_ptr<T>>;

  template <class Role>
  explicit vector_view(range<T, Role, Space> elements) noexcept
      : data_(elements.data()), size_(elements.size()) {}

  iterator data() const noexcept { return iterator(data_); }
  iterator begin() const noexcept { return iterator(data_); }
  iterator end() const noexcept { return iterator(data_) + static_cast<std::ptrdiff_t>(size_); }
  std::uint64_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  /// On a device a proxy, and each use of it a copy that waits.
  decltype(auto) operator[](std::uint64_t i) const {
    return begin()[static_cast<std::ptrdiff_t>(i)];
  }

 private:
  static_assert(std::is_same_v<Space, host_space> ||
                    std::is_base_of_v<thrust::cuda::execution_policy<thrust::device_system_tag>,
                                      thrust::device_system_tag>,
                "zero::as_vector_view: a range in cuda_space needs Thrust's CUDA system, and "
                "THRUST_DEVICE_SYSTEM is another one");

  T* data_;
  std::uint64_t size_;
};

/// The elements of a range for Thrust's algorithms: parameters and gradients of an engine, a shard.
///
/// The role is lost: what an algorithm computes over a partial range is not reduced over the ranks.
template <class T, class Role, class Space>
vector_view<T, Space> as_vector_view(range<T, Role, Space> elements) noexcept {
  return vector_view<T, Space>(elements);
}

}  // namespace zero
