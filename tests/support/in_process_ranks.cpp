// SPDX-License-Identifier: Apache-2.0
#include "support/in_process_ranks.hpp"

#include "conformance/backends.hpp"

namespace zero::test {

any_ranks self_ranks() {
  return erase_ranks<self_backend>();
}
any_ranks threads_ranks() {
  return erase_ranks<threads_backend>();
}
any_ranks metered_ranks() {
  return erase_ranks<metered_backend>();
}
any_ranks delaying_ranks() {
  return erase_ranks<delaying_backend>();
}
any_ranks stack_ranks() {
  return erase_ranks<stack_backend>();
}

}  // namespace zero::test
