// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an engine on CUDA devices needs besides a communicator of backends/nccl.hpp or
// backends/cuda_threads.hpp. It includes the runtime's header and needs no nvcc; the kernels come
// from one .cu file (see kernels/instantiate.hpp).

#include <zero/cuda/device.hpp>  // IWYU pragma: export
#include <zero/cuda/event.hpp>   // IWYU pragma: export
#include <zero/cuda/memory.hpp>  // IWYU pragma: export
#include <zero/cuda/pinned.hpp>  // IWYU pragma: export
#include <zero/cuda/queue.hpp>   // IWYU pragma: export
#include <zero/cuda/stream.hpp>  // IWYU pragma: export
#include <zero/detail/cuda_executor.hpp>
#include <zero/detail/cuda_update_flow.hpp>
#include <zero/engine.hpp>  // IWYU pragma: export
