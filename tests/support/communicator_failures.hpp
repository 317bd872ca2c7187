// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "support/any_ranks.hpp"

// How every communicator with more than one rank has to fail: by a typed error on every rank, at
// once or at the deadline, and never by hanging (a hang ends the test by its ctest timeout).
// Each function returns "" or one line for everything that was not as it has to be.

namespace zero::test {

/// R3: one rank throws; the others leave with its reason, and it is named as the cause.
std::string throwing_rank_violations(const any_ranks& ranks);
/// Row 41: one rank has fewer batches than the others.
std::string leaving_rank_violations(const any_ranks& ranks);
/// Row 43: a peer never comes. Every rank that waits says who is missing, where, and for how long.
std::string timeout_violations(const any_ranks& ranks);
/// Row 40: ranks take different branches.
std::string divergence_violations(const any_ranks& ranks);
/// abort() from a thread that is no rank wakes the ranks that wait, and can be called again.
std::string abort_violations(const any_ranks& ranks);
/// After a failure every call of every kind throws at once, claims still work.
std::string poisoned_violations(const any_ranks& ranks);

}  // namespace zero::test
