// SPDX-License-Identifier: Apache-2.0
// expect: zero::as_range: this is no memory of a CUDA device
#include <zero/adapters/thrust.hpp>

#include <thrust/host_vector.h>

void use(thrust::host_vector<float>& vector) {
  zero::as_range<zero::full, zero::cuda_space>(vector);
}
