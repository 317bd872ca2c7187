// SPDX-License-Identifier: Apache-2.0
// expect: zero::any_communicator: the communicator has to sum in rank_tree order
#include <string_view>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/self.hpp>

struct sums_in_any_order : zero::self_communicator {
  static constexpr zero::summation sums = zero::summation::unspecified;
};

int main() {
  sums_in_any_order inner;
  zero::any_communicator any(inner);
}
