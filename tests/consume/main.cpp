// SPDX-License-Identifier: Apache-2.0
#if __has_include(<zero/zero.hpp>)
#include <zero/zero.hpp>
#endif
#include <zero/version.hpp>

int main() {
  return zero::version_number > 0 ? 0 : 1;
}
