// SPDX-License-Identifier: Apache-2.0
#pragma once

// The backend whose ranks are threads of one process that share one CUDA device, or have one each
// with peer access. Host-only headers: they need the CUDA runtime, and the fold kernel from a file
// that nvcc compiles (kernels/instantiate.hpp says how).

#include <zero/backends/cuda_threads/communicator.hpp>
#include <zero/backends/cuda_threads/world.hpp>
