// SPDX-License-Identifier: Apache-2.0
// expect: zero: device memory is copied in a queue, so name one
#include <zero/adapters/thrust.hpp>

#include <thrust/host_vector.h>

void use(zero::range<const float, zero::full, zero::cuda_space> parameters,
         thrust::host_vector<float>& vector) {
  zero::copy_to_vector(parameters, vector);
}
