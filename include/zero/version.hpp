// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

// The build files read the three numbers from these lines, so they stand nowhere else.
inline constexpr std::uint32_t version_major = 0;
inline constexpr std::uint32_t version_minor = 1;
inline constexpr std::uint32_t version_patch = 0;

/// The library version as one number that grows with every release; part of the fingerprint that
/// ranks compare.
inline constexpr std::uint64_t version_number =
    std::uint64_t{version_major} * 1'000'000 + std::uint64_t{version_minor} * 1'000 +
    std::uint64_t{version_patch};

}  // namespace zero
