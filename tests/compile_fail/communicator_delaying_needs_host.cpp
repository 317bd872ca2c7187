// SPDX-License-Identifier: Apache-2.0
// expect: zero::delaying: a host communicator is needed
#include <zero/backends/delaying.hpp>
#include <zero/backends/self.hpp>

struct on_a_device : zero::self_communicator {
  using memory_space = zero::cuda_space;
};

int main() {
  on_a_device inner;
  zero::delaying<on_a_device> delay(inner);
}
