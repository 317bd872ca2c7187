// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include <zero/config.hpp>
#include <zero/error.hpp>
#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/bit_cast.hpp>
#include <zero/numeric/float16.hpp>

namespace zero::kernels::cuda {

/// The widest access of one thread to global memory.
inline constexpr std::size_t access_bytes = 16;

/// An array of fixed length, also 0, that device code can index; std::array's functions it cannot.
template <class T, std::size_t Length>
struct fixed_array {
  T values[Length == 0 ? 1 : Length];

  ZERO_HOST_DEVICE constexpr T& operator[](std::size_t i) { return values[i]; }
  ZERO_HOST_DEVICE constexpr const T& operator[](std::size_t i) const { return values[i]; }
};

/// Consecutive elements in registers.
template <class T, std::size_t Elements>
using pack = fixed_array<T, Elements>;

namespace detail {

/// The bytes of one access to a pack: the largest power of two up to 16 that divides it.
constexpr std::size_t access_width(std::size_t pack_bytes) noexcept {
  std::size_t width = access_bytes;
  while (pack_bytes % width != 0) width /= 2;
  return width;
}

/// What one load or store instruction moves. The compiler merges words, not 16-bit elements.
template <std::size_t Bytes>
struct alignas(Bytes) access {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16,
                "zero::kernels::cuda: a pack must be a whole number of 4-byte words");
  std::uint32_t words[Bytes / 4];
};

template <class T, std::size_t Elements>
struct pack_accesses {
  static constexpr std::size_t width = access_width(Elements * sizeof(T));
  access<width> values[Elements * sizeof(T) / width];
};

/// What a device stops for, where a body runs on the host.
inline void require_alignment(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    throw usage_error("kernels::cuda: an access of " + std::to_string(bytes) +
                      " bytes at an address that is not a multiple of them");
  }
}

}  // namespace detail

/// Whether packs of any length can be read from here on.
template <class T>
ZERO_HOST_DEVICE inline bool is_aligned(const T* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % access_bytes == 0;
}

/// Reads a pack from an aligned address in accesses of 16 bytes, or of its own size if smaller.
template <std::size_t Elements, class T>
ZERO_HOST_DEVICE inline pack<T, Elements> load_pack(const T* source) {
  if constexpr (Elements == 1) {
    return {{*source}};
  } else {
    using accesses = detail::pack_accesses<T, Elements>;
    accesses raw;
#if defined(__CUDA_ARCH__)
    using access = detail::access<accesses::width>;
    for (std::size_t k = 0; k < sizeof(accesses) / sizeof(access); ++k) {
      raw.values[k] = reinterpret_cast<const access*>(source)[k];
    }
#else
    detail::require_alignment(source, accesses::width);
    std::memcpy(&raw, source, sizeof(raw));
#endif
    return zero::detail::bit_cast<pack<T, Elements>>(raw);
  }
}

/// Writes a pack to an aligned address.
template <std::size_t Elements, class T>
ZERO_HOST_DEVICE inline void store_pack(T* target, const pack<T, Elements>& values) {
  if constexpr (Elements == 1) {
    *target = values[0];
  } else {
    using accesses = detail::pack_accesses<T, Elements>;
    const auto raw = zero::detail::bit_cast<accesses>(values);
#if defined(__CUDA_ARCH__)
    using access = detail::access<accesses::width>;
    for (std::size_t k = 0; k < sizeof(accesses) / sizeof(access); ++k) {
      reinterpret_cast<access*>(target)[k] = raw.values[k];
    }
#else
    detail::require_alignment(target, accesses::width);
    std::memcpy(static_cast<void*>(target), &raw, sizeof(raw));
#endif
  }
}

/// The type in which elements of these types are computed with: double where one of them is.
template <class... T>
using common_type = std::conditional_t<(std::is_same_v<T, double> || ...), double, float>;

/// One element in another type. The 16-bit types know float only, so double passes through it.
template <class To, class From>
ZERO_HOST_DEVICE constexpr To convert_element(const From& value) {
  constexpr bool is_narrowing =
      std::is_same_v<From, double> && (std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>);
  if constexpr (std::is_constructible_v<To, const From&> && !is_narrowing) {
    return static_cast<To>(value);
  } else {
    return static_cast<To>(static_cast<float>(value));
  }
}

/// Calls body(first element, pack length) so that all threads together cover [0, count): packs of
/// `Elements` where `in_packs`, single elements for the rest.
///
/// The length comes as an integral_constant. Neighbouring threads take neighbouring packs.
template <std::size_t Elements, class Body>
ZERO_HOST_DEVICE inline void for_each_pack(std::uint64_t thread, std::uint64_t threads,
                                           std::uint64_t count, bool in_packs, const Body& body) {
  const std::uint64_t packs = in_packs ? count / Elements : 0;
  ZERO_ONE_TURN_AT_A_TIME
  for (std::uint64_t i = thread; i < packs; i += threads) {
    body(i * Elements, std::integral_constant<std::size_t, Elements>{});
  }
  ZERO_ONE_TURN_AT_A_TIME
  for (std::uint64_t i = packs * Elements + thread; i < count; i += threads) {
    body(i, std::integral_constant<std::size_t, 1>{});
  }
}

}  // namespace zero::kernels::cuda
