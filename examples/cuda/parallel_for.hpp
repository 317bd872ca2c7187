// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace cuda_example {

/// Enqueues `function(i)` for every i below `count`, in no particular order.
///
/// Defined by whoever compiles the kernels: parallel_for.cuh for a device; the tests run the same
/// functions on the host.
template <class Function>
void parallel_for(std::uint64_t count, const Function& function, cudaStream_t stream);

}  // namespace cuda_example
