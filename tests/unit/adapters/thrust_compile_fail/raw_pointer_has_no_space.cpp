// SPDX-License-Identifier: Apache-2.0
// expect: zero::as_range: a raw pointer does not say where its memory lies
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <zero/adapters/thrust.hpp>

void use(float* pointer) {
  zero::as_range<zero::full>(pointer, pointer + 3);
}
