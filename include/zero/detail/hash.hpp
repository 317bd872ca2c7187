// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <zero/config.hpp>
#include <zero/numeric/bit_cast.hpp>

namespace zero::detail {

/// A 64-bit hash that is fed field by field. Every field is delimited, so that ("ab", "c") and
/// ("a", "bc") differ. Not cryptographic: it finds mistakes, not attacks. Device code can feed it
/// numbers.
class hasher {
 public:
  ZERO_HOST_DEVICE constexpr hasher() noexcept {}  // NOLINT: a defaulted one is for the host only

  ZERO_HOST_DEVICE constexpr hasher& add(std::uint64_t value) noexcept {
    state_ = mix(state_ ^ mix(value + 0x9e3779b97f4a7c15ULL));
    return *this;
  }
  ZERO_HOST_DEVICE constexpr hasher& add(double value) noexcept {
    return add(bit_cast<std::uint64_t>(value));
  }
  constexpr hasher& add(std::string_view text) noexcept {
    std::uint64_t fnv = 0xcbf29ce484222325ULL;
    for (const char c : text) {
      fnv = (fnv ^ static_cast<std::uint64_t>(static_cast<unsigned char>(c))) * 0x100000001b3ULL;
    }
    return add(fnv).add(static_cast<std::uint64_t>(text.size()));
  }

  ZERO_HOST_DEVICE constexpr std::uint64_t value() const noexcept { return state_; }

  /// A bijective finaliser: every input bit reaches every output bit (Stafford's variant 13).
  ZERO_HOST_DEVICE static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3ULL;
};

}  // namespace zero::detail
