// SPDX-License-Identifier: Apache-2.0
// expect: constraint.*metered
#include <zero/backends/metered.hpp>

using misuse = zero::metered<int>;
misuse* never = nullptr;
