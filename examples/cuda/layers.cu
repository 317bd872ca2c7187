// SPDX-License-Identifier: Apache-2.0
// The one file of this program that nvcc compiles: its own kernels, and those of the library for
// the optimizer and the precision that it trains with.
#include <zero/kernels/cuda/instantiate.cuh>

#include "layers_impl.hpp"
#include "parallel_for.cuh"

template struct cuda_example::layers<zero::bfloat16>;
template struct zero::kernels::instantiate<zero::adamw, zero::bf16_mixed>;
