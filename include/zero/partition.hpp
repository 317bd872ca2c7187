// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

/// A half-open run of element positions.
struct interval {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  constexpr std::uint64_t size() const noexcept { return end - begin; }
  constexpr bool empty() const noexcept { return begin == end; }
  friend constexpr bool operator==(const interval&, const interval&) = default;
};

/// The common part of two intervals; empty where they do not meet.
constexpr interval intersect(interval a, interval b) noexcept {
  const std::uint64_t begin = a.begin > b.begin ? a.begin : b.begin;
  const std::uint64_t end = a.end < b.end ? a.end : b.end;
  return begin < end ? interval{begin, end} : interval{begin, begin};
}

/// The smallest multiple of `multiple` that is at least `value`.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
  const std::uint64_t rest = value % multiple;
  return rest == 0 ? value : value + (multiple - rest);
}

/// A flat range cut into equal shards, one per rank; rank r owns shard r.
///
/// The only place in the library where a shard is computed. Any number of ranks and any size work:
/// the range is padded to a multiple of ranks x alignment, and a rank may own padding only.
/// Units: elements.
struct partition {
  std::uint64_t flat_elements = 0;   ///< tensors and the alignment gaps between them
  std::uint64_t shard_elements = 0;  ///< what one rank owns, padding included
  int ranks = 1;

  constexpr std::uint64_t padded_elements() const noexcept {
    return shard_elements * static_cast<std::uint64_t>(ranks);
  }
  constexpr interval owned_by(int rank) const noexcept {
    const std::uint64_t begin = shard_elements * static_cast<std::uint64_t>(rank);
    return {begin, begin + shard_elements};
  }
  constexpr interval whole() const noexcept { return {0, padded_elements()}; }
};

/// Cuts `flat_elements` into `ranks` shards whose size is a multiple of `alignment_elements`.
constexpr partition make_partition(std::uint64_t flat_elements, int ranks,
                                   std::uint64_t alignment_elements) noexcept {
  const auto n = static_cast<std::uint64_t>(ranks);
  const std::uint64_t share = flat_elements / n + (flat_elements % n == 0 ? 0 : 1);
  return {flat_elements, round_up(share, alignment_elements), ranks};
}

static_assert(make_partition(0, 4, 32).padded_elements() == 0);
static_assert(make_partition(1, 4, 32).padded_elements() == 128);
static_assert(make_partition(128, 4, 32).padded_elements() == 128);
static_assert(make_partition(129, 4, 1).shard_elements == 33);
static_assert(make_partition(129, 4, 1).owned_by(3) == interval{99, 132});

}  // namespace zero
