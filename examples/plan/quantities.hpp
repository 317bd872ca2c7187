// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace planning {

/// Parses a number of parameters: 124000000, 7.5e9, 7.5B, 128B, 1T, 1.5M, 20K.
/// The suffixes are powers of ten, the arithmetic is exact.
/// Throws: example::usage_failure unless the value is a whole number from 1 to 10^15.
std::uint64_t parse_count(std::string_view text);

/// Parses an amount of memory: 80GB is 80 x 10^9 bytes, 80GiB is 80 x 2^30; also K, M and T, and
/// plain bytes. Parts of a byte are dropped.
/// Throws: example::usage_failure for anything else, for 0 and from 2^60 bytes.
std::uint64_t parse_bytes(std::string_view text);

/// numerator / denominator with at most `decimals` digits after the point, half away from zero,
/// without trailing zeros. Exact: no floating-point number is involved.
/// Expects denominator * 10^decimals below 2^64.
std::string decimal(std::uint64_t numerator, std::uint64_t denominator, int decimals);

/// Bytes in the unit that suits them, powers of ten, one decimal: 1.9 MB.
std::string readable_bytes(std::uint64_t bytes);

}  // namespace planning
