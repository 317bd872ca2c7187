// SPDX-License-Identifier: Apache-2.0
// labels: fault
#include <zero/partition.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <type_traits>
#include <vector>

using zero::interval;
using zero::make_partition;
using zero::partition;

namespace {

constexpr std::uint64_t sizes[] = {0,  1,  2,  3,  5,   7,   8,   13,   24,        31,
                                   32, 33, 64, 97, 101, 127, 128, 1009, 1'000'003, 1'048'576};
constexpr std::uint64_t alignments[] = {1, 2, 4, 8, 16, 32, 64, 128};

/// How many of the first `flat` elements each rank owns.
std::vector<std::uint64_t> owned(std::uint64_t flat, int ranks, std::uint64_t alignment) {
  const partition cut = make_partition(flat, ranks, alignment);
  std::vector<std::uint64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    counts.push_back(zero::intersect(cut.owned_by(rank), {0, flat}).size());
  }
  return counts;
}

}  // namespace

static_assert(zero::intersect({0, 4}, {2, 9}) == interval{2, 4});
static_assert(zero::intersect({0, 4}, {4, 9}).empty());
static_assert(zero::intersect({5, 9}, {0, 3}).empty());
static_assert(zero::intersect({2, 3}, {0, 9}) == interval{2, 3});
static_assert(zero::round_up(0, 8) == 0 && zero::round_up(8, 8) == 8 && zero::round_up(9, 8) == 16);
// A value next to the end of 64 bits must not wrap when it is a multiple already.
static_assert(zero::round_up(~std::uint64_t{0} - 7, 8) == ~std::uint64_t{0} - 7);
static_assert(std::is_same_v<decltype(partition::shard_elements), std::uint64_t>);
static_assert(std::is_same_v<decltype(interval::begin), std::uint64_t>);

TEST_CASE("shards are equal, disjoint, aligned and cover everything") {
  for (const std::uint64_t flat : sizes) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const std::uint64_t alignment : alignments) {
        CAPTURE(flat, ranks, alignment);
        const partition cut = make_partition(flat, ranks, alignment);
        REQUIRE(cut.flat_elements == flat);
        REQUIRE(cut.shard_elements % alignment == 0);
        REQUIRE(cut.padded_elements() == cut.shard_elements * static_cast<std::uint64_t>(ranks));
        REQUIRE(cut.whole() == interval{0, cut.padded_elements()});
        std::uint64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          REQUIRE(cut.owned_by(rank).begin == next);
          REQUIRE(cut.owned_by(rank).size() == cut.shard_elements);
          next = cut.owned_by(rank).end;
        }
        REQUIRE(next >= flat);
        // No more than one alignment unit per rank is wasted.
        REQUIRE(next - flat < static_cast<std::uint64_t>(ranks) * alignment);
      }
    }
  }
}

TEST_CASE("a partition is the smallest that fits") {
  for (const std::uint64_t flat : sizes) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const std::uint64_t alignment : alignments) {
        const partition cut = make_partition(flat, ranks, alignment);
        if (cut.shard_elements == 0) {
          REQUIRE(flat == 0);
        } else {
          REQUIRE((cut.shard_elements - alignment) * static_cast<std::uint64_t>(ranks) < flat);
        }
      }
    }
  }
}

TEST_CASE("fault_01 fewer elements than ranks: the last ranks own nothing") {
  REQUIRE(owned(3, 8, 1) == std::vector<std::uint64_t>{1, 1, 1, 0, 0, 0, 0, 0});
  REQUIRE(owned(9, 8, 16) == std::vector<std::uint64_t>{9, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("fault_02 nothing to partition") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    REQUIRE(make_partition(0, ranks, 32).shard_elements == 0);
    REQUIRE(make_partition(0, ranks, 32).owned_by(ranks - 1).empty());
  }
}

TEST_CASE("fault_03 sizes that no number of ranks divides are owned once, in order") {
  for (const std::uint64_t flat : {7u, 13u, 101u}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      CAPTURE(flat, ranks);
      std::uint64_t sum = 0;
      for (const std::uint64_t count : owned(flat, ranks, 1))
        sum += count;
      REQUIRE(sum == flat);
    }
  }
  REQUIRE(owned(7, 3, 1) == std::vector<std::uint64_t>{3, 3, 1});
  REQUIRE(owned(101, 8, 1) == std::vector<std::uint64_t>{13, 13, 13, 13, 13, 13, 13, 10});
}

TEST_CASE("fault_37 sizes beyond 2^31 and 2^32") {
  constexpr std::uint64_t flat = (std::uint64_t{1} << 31) + 5;
  static_assert(make_partition(flat, 3, 32).shard_elements == 715'827'904);
  static_assert(make_partition(flat, 3, 32).owned_by(2).end == 2'147'483'712);
  static_assert(make_partition(std::uint64_t{1} << 62, 8, 32).padded_elements() == std::uint64_t{1}
                                                                                       << 62);
  const std::vector<std::uint64_t> counts = owned(flat, 3, 32);
  REQUIRE(counts[0] + counts[1] + counts[2] == flat);
}
