// SPDX-License-Identifier: Apache-2.0
// expect: zero::as_vector_view: a range in cuda_space needs Thrust's CUDA system
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <zero/adapters/thrust.hpp>

void use(zero::range<float, zero::partial, zero::cuda_space> gradients) {
  zero::as_vector_view(gradients);
}
