// SPDX-License-Identifier: Apache-2.0
// expect: zero::as_range: the host cannot dereference device memory
#include <zero/adapters/thrust.hpp>

#include <thrust/device_vector.h>

void use(thrust::device_vector<float>& vector) {
  zero::as_range<zero::full, zero::host_space>(vector);
}
