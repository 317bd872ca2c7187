// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <zero/config.hpp>

namespace zero::detail {

/// std::bit_cast, callable in device code as well, where the functions of std are not.
template <class To, class From>
ZERO_HOST_DEVICE constexpr To bit_cast(const From& value) noexcept {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To> &&
                std::is_trivially_copyable_v<From>);
  return __builtin_bit_cast(To, value);
}

}  // namespace zero::detail
