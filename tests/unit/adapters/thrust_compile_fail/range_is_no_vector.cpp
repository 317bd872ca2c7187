// SPDX-License-Identifier: Apache-2.0
// A class that holds a raw pointer to device memory looks like a vector.
// expect: zero::as_range: a raw pointer does not say where its memory lies
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <zero/adapters/thrust.hpp>

struct device_buffer {
  float* begin() const;
  unsigned size() const;
};

void use(device_buffer& buffer) {
  zero::as_range<zero::full>(buffer);
}
