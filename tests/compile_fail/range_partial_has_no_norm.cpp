// SPDX-License-Identifier: Apache-2.0
// expect: partial|no matching function for call to .norm
#include <zero/zero.hpp>

// The norm of unreduced gradients: the mistake that a role in the type prevents.
double norm(zero::range<const float, zero::shard> reduced);

double mistake(zero::range<float, zero::partial> gradients) { return norm(gradients); }
