// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace cuda_bodies {

/// Runs a kernel body on the host: every thread in turn, from the last to the first, because no
/// order is promised.
template <class Body>
void run_all_threads(const Body& body, std::uint64_t threads) {
  for (std::uint64_t thread = threads; thread-- > 0;) body.run(thread, threads);
}

/// Odd, so that no thread's part begins where a vector or a warp would like it to.
inline constexpr std::uint64_t thread_counts[] = {1, 3, 7, 33, 257, 1025};

/// A thread count for each size; neighbouring sizes get different ones.
inline std::uint64_t threads_of(std::uint64_t count) {
  return thread_counts[count % 6];
}

/// Sizes to 4,096: all of them when ZERO_FULL is set, else the small ones and every 61st.
inline std::vector<std::uint64_t> sizes() {
  const bool all = std::getenv("ZERO_FULL") != nullptr;
  std::vector<std::uint64_t> result;
  for (std::uint64_t size = 0; size <= 4096; ++size) {
    if (all || size <= 40 || size % 61 == 0 || size >= 4095) result.push_back(size);
  }
  return result;
}

}  // namespace cuda_bodies
