// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include <zero/error.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/range.hpp>

namespace zero::detail {

/// A type that collectives can move: bytes with a wire id.
template <class T>
concept TransferableElement = std::is_trivially_copyable_v<T> && requires {
  { element_traits<T>::wire_id } -> std::convertible_to<std::uint32_t>;
  { element_traits<T>::name } -> std::convertible_to<std::string_view>;
};

/// A type that collectives can also sum: bit patterns such as hashes are only moved.
template <class T>
concept SummableElement =
    TransferableElement<T> && std::floating_point<typename element_traits<T>::compute_type>;

/// Output types of a sum over T: rounded to T, or the compute type with nothing rounded.
template <class U, class T>
concept SumOutputOf =
    SummableElement<T> &&
    (std::same_as<U, T> || std::same_as<U, typename element_traits<T>::compute_type>);

[[noreturn]] inline void throw_misuse(std::string_view backend, int rank,
                                      std::string_view operation, const std::string& what) {
  std::string text(backend);
  text += " rank " + std::to_string(rank) + ", ";
  text += operation;
  throw usage_error(text + ": " + what);
}

/// Whether [a, a + a_bytes) and [b, b + b_bytes) share a byte.
inline bool overlaps(const void* a, std::uint64_t a_bytes, const void* b,
                     std::uint64_t b_bytes) noexcept {
  if (a_bytes == 0 || b_bytes == 0) return false;
  const auto* first = static_cast<const unsigned char*>(a);
  const auto* second = static_cast<const unsigned char*>(b);
  // std::less orders pointers into different objects, the built-in operator does not.
  const std::less<> before;
  return before(first, second + b_bytes) && before(second, first + a_bytes);
}

/// The ranges of one call, named for the message.
struct checked_call {
  std::string_view backend;
  int rank;
  int size;
  std::string_view operation;
};

/// Requires: the full side has size x shard elements, no missing pointer, and the two ranges are
/// disjoint or the shard side is exactly shard `rank` of the full side (same element size).
template <class Full, class Shard>
void check_full_and_shard(const checked_call& call, const Full* full, std::uint64_t full_elements,
                          const Shard* shard, std::uint64_t shard_elements) {
  const auto size = static_cast<std::uint64_t>(call.size);
  if (full_elements % size != 0 || full_elements / size != shard_elements) {
    throw_misuse(call.backend, call.rank, call.operation,
                 "the full range has " + std::to_string(full_elements) +
                     " elements, but size x shard = " + std::to_string(call.size) + " x " +
                     std::to_string(shard_elements));
  }
  if (shard_elements == 0) return;
  if (full == nullptr || shard == nullptr) {
    throw_misuse(call.backend, call.rank, call.operation,
                 "a range of " + std::to_string(shard_elements) + " elements has a null pointer");
  }
  const auto own = static_cast<std::uint64_t>(call.rank) * shard_elements;
  const bool in_place = sizeof(Full) == sizeof(Shard) &&
                        static_cast<const void*>(full + own) == static_cast<const void*>(shard);
  if (!in_place && overlaps(full, full_elements * sizeof(Full), shard,
                            shard_elements * sizeof(Shard))) {
    throw_misuse(call.backend, call.rank, call.operation,
                 "the shard range (" + std::to_string(shard_elements) +
                     " elements) overlaps the full range (" + std::to_string(full_elements) +
                     " elements) without being its shard " + std::to_string(call.rank));
  }
}

/// Requires: no missing pointer.
template <class T>
void check_values(const checked_call& call, const T* values, std::uint64_t elements) {
  if (elements != 0 && values == nullptr) {
    throw_misuse(call.backend, call.rank, call.operation,
                 "a range of " + std::to_string(elements) + " elements has a null pointer");
  }
}

/// Requires: a rank of this size.
inline void check_root(const checked_call& call, int root) {
  if (root < 0 || root >= call.size) {
    throw_misuse(call.backend, call.rank, call.operation,
                 "root " + std::to_string(root) + " is not a rank of " + std::to_string(call.size));
  }
}

}  // namespace zero::detail
