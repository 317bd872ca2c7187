// SPDX-License-Identifier: Apache-2.0
// expect: zero::any_communicator: the communicator lacks all_reduce
#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/self.hpp>

struct lacks_all_reduce : zero::self_communicator {
  void all_reduce() {}
};

int main() {
  lacks_all_reduce inner;
  zero::any_communicator any(inner);
}
