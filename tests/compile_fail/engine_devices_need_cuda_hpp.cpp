// SPDX-License-Identifier: Apache-2.0
// expect: zero::engine: the communicator's buffers are in device memory; include <zero/cuda\.hpp>
// links: zero_nccl_headers
#include <zero/backends/nccl.hpp>
#include <zero/zero.hpp>

using wrong = zero::engine<zero::stage2, zero::bf16_mixed, zero::nccl_communicator, zero::adamw>;
auto size = sizeof(wrong);
