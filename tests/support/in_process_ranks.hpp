// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/any_ranks.hpp"

// The fixtures of conformance/backends.hpp without their types, so that they are compiled once.

namespace zero::test {

any_ranks self_ranks();
any_ranks threads_ranks();
any_ranks metered_ranks();
any_ranks delaying_ranks();
/// Meter, delay and fault around threads, all off.
any_ranks stack_ranks();

}  // namespace zero::test
