// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranges from and to Thrust's vectors, and an optimizer step on any system of Thrust. It needs
// Thrust's headers, and nvcc for what runs on a device; see docs/thrust.md.
//
// Files of one program agree on THRUST_DEVICE_SYSTEM, as Thrust itself asks for.

#include <thrust/detail/config.h>

#include <zero/adapters/thrust/copy.hpp>
#include <zero/adapters/thrust/range.hpp>
#include <zero/adapters/thrust/update.hpp>

// The others need no CUDA runtime.
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <zero/adapters/thrust/cuda_copy.hpp>
#endif
