// SPDX-License-Identifier: Apache-2.0
// expect: zero::as_range: host and device can use universal memory, so the caller says who does
#include <zero/adapters/thrust.hpp>

#include <thrust/universal_vector.h>

void use(thrust::universal_vector<float>& vector) {
  zero::as_range<zero::full>(vector);
}
