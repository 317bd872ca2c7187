// SPDX-License-Identifier: Apache-2.0
// expect: operator\[\]|subscript|constraints
#include <zero/zero.hpp>

float read(zero::range<float, zero::full, zero::cuda_space> values) { return values[0]; }
