// SPDX-License-Identifier: Apache-2.0
// expect: full|shard|convert
#include <zero/zero.hpp>

zero::range<float, zero::full> mistake(zero::range<float, zero::shard> part) { return part; }
