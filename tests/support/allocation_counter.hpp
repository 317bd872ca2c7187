// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero::test {

/// Allocations of the calling thread so far: operator new in every form, malloc, calloc, realloc,
/// posix_memalign, aligned_alloc.
std::uint64_t allocations_of_this_thread() noexcept;

/// The bytes asked for by these allocations; freeing does not take anything back.
std::uint64_t allocated_bytes_of_this_thread() noexcept;

}  // namespace zero::test
