// SPDX-License-Identifier: Apache-2.0
// expect: zero: a copy between a range and a vector needs one element type
#include <zero/adapters/thrust.hpp>

#include <thrust/host_vector.h>

#include <zero/numeric/bfloat16.hpp>

void use(zero::range<const zero::bfloat16, zero::full> parameters,
         thrust::host_vector<float>& vector) {
  zero::copy_to_vector(parameters, vector);
}
