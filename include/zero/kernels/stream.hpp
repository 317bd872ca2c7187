// SPDX-License-Identifier: Apache-2.0
#pragma once

struct CUstream_st;  // the CUDA runtime's own name for what cudaStream_t points to

namespace zero::kernels {

/// cudaStream_t, without the CUDA headers.
using cuda_stream = CUstream_st*;

}  // namespace zero::kernels
