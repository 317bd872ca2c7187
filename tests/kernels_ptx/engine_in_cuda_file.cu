// SPDX-License-Identifier: Apache-2.0
// An engine on the host and device kernels in one file that nvcc compiles, without a warning: the
// element maths is instantiated with vectors of the host, for which nvcc has no device code.
#include <zero/kernels/cuda/instantiate.cuh>
#include <zero/zero.hpp>

template class zero::engine<zero::stage2, zero::bf16_mixed, zero::threads_communicator,
                            zero::adamw>;
template struct zero::kernels::instantiate<zero::adamw, zero::bf16_mixed>;
