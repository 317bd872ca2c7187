// SPDX-License-Identifier: Apache-2.0
// expect: zero::as_range: the elements are not contiguous in memory
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <zero/adapters/thrust.hpp>

#include <thrust/host_vector.h>

void use(thrust::host_vector<float>& vector) {
  zero::as_range<zero::full>(vector.rbegin(), vector.rend());
}
