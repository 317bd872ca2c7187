// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
// timeout: 120
#include <catch2/catch.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <zero/backends/hybrid.hpp>
#include <zero/backends/threads.hpp>

#include "conformance/backends.hpp"
#include "conformance/communicator_contract.hpp"
#include "conformance/reference.hpp"

using namespace zero;
using namespace zero::test;

// With one group a hybrid keeps the contract of the communicator it wraps. With several, every
// rank r of every group receives the sum over all ranks of shard r, by a tree of trees.

namespace {

struct wrap_one_group {
  template <class Function>
  static auto call(threads_communicator& inner, Function& function) {
    hybrid grouped(inner, inner.size());
    return function(grouped);
  }
};
using one_group = wrapped_backend<wrap_one_group>;

/// The sum of rank sums[0..] in groups: the tree inside each group, then the tree over groups.
template <class T, class U>
U tree_of_trees(int groups, int shards, std::uint64_t index, float scale) {
  using compute_type = typename element_traits<T>::compute_type;
  std::vector<compute_type> group_sums;
  for (int group = 0; group < groups; ++group) {
    std::vector<compute_type> terms;
    for (int rank = 0; rank < shards; ++rank) {
      terms.push_back(
          static_cast<compute_type>(random_fractions::at<T>(group * shards + rank, index)));
    }
    group_sums.push_back(pairwise_sum(terms.data(), terms.size()));
  }
  const compute_type sum = pairwise_sum(group_sums.data(), group_sums.size());
  return static_cast<U>(sum * static_cast<compute_type>(scale));
}

template <class T, class U>
void check_crossing() {
  struct shape {
    int groups;
    int shards;
  };
  for (const shape s : {shape{2, 1}, {2, 2}, {2, 3}, {3, 2}, {4, 2}, {5, 1}, {1, 5}, {8, 1}}) {
    for (const std::uint64_t part : {0U, 1U, 7U, 1009U}) {
      for (const float scale : {1.0F, 0.3F}) {
        const auto texts =
            run_threads(s.groups * s.shards, long_timeout, [&](threads_communicator& world) {
              hybrid grouped(world, s.shards);
              const std::uint64_t shard_elements = part * static_cast<std::uint64_t>(s.groups);
              std::vector<std::byte> scratch(shard_elements * sizeof(double));
              grouped.lend_scratch(scratch);
              std::vector<T> in(shard_elements * static_cast<std::uint64_t>(s.shards));
              std::vector<U> out(shard_elements);
              fill<random_fractions>(in, world.rank());
              grouped
                  .reduce_scatter(range<const T, partial>(in.data(), in.size()),
                                  range<U, shard>(out.data(), out.size()), {.scale = scale})
                  .wait({});
              const auto first = static_cast<std::uint64_t>(grouped.rank()) * shard_elements;
              return first_difference(out.data(), shard_elements, [&](std::uint64_t i) {
                return tree_of_trees<T, U>(s.groups, s.shards, first + i, scale);
              });
            });
        INFO(s.groups << " groups of " << s.shards << ", " << part << " x groups elements");
        for (const std::string& text : texts) CHECK(text == "");
      }
    }
  }
}

}  // namespace

TEST_CASE("a hybrid of one group keeps the communicator contract") {
  contract_options options = decorator_contract();
  options.splits = false;  // the hybrid is made of parts itself
  check_contract<one_group>(options);
}

TEST_CASE("a hybrid of several groups sums all ranks by a tree of trees, rounded once") {
  SECTION("float") {
    check_crossing<float, float>();
  }
  SECTION("double") {
    check_crossing<double, double>();
  }
  SECTION("bfloat16") {
    check_crossing<bfloat16, bfloat16>();
  }
  SECTION("float16") {
    check_crossing<float16, float16>();
  }
  SECTION("bfloat16, unrounded") {
    check_crossing<bfloat16, float>();
  }
}
