// SPDX-License-Identifier: Apache-2.0
#pragma once

// The only home of macros; all of them start with ZERO_.

// The body of an element-wise operation is the same text on the host and on a GPU.
#if defined(__CUDACC__)
#define ZERO_HOST_DEVICE __host__ __device__
#else
#define ZERO_HOST_DEVICE
#endif

// Before a ZERO_HOST_DEVICE template that calls the functions of an Ops: some Ops are for the host
// alone, and nvcc would warn wherever such a template is used with them.
#if defined(__NVCC__)
#define ZERO_ANY_OPS _Pragma("nv_exec_check_disable")
#else
#define ZERO_ANY_OPS
#endif

// Before a loop of device code whose one turn is a thread's whole work: unrolled it would take
// registers from other threads.
#if defined(__CUDA_ARCH__)
#define ZERO_ONE_TURN_AT_A_TIME _Pragma("unroll 1")
#else
#define ZERO_ONE_TURN_AT_A_TIME
#endif

// 1 where the AVX2 and AVX-512 kernels can be compiled (they are chosen at run time, so no
// instruction-set flag is needed); 0 where only the scalar kernels exist, and where nvcc compiles
// for a GPU, which has no such vectors.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDA_ARCH__)
#define ZERO_HAS_X86_KERNELS 1
#else
#define ZERO_HAS_X86_KERNELS 0
#endif
