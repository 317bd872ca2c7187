# SPDX-License-Identifier: Apache-2.0
# zero_gpu_kernels: the library's device code for the programs that need a GPU, tests/gpu and
# bench/gpu. An ordinary build compiles a part, which shows that they compile and link; all of it is
# what scripts/gpu_check.sh builds.

option(ZERO_TEST_GPU_ALL
  "Compile tests/gpu and bench/gpu for all optimizers, precisions and stages, not for a few" OFF)
option(ZERO_TEST_GPU_SIMULATED "Run tests/gpu on the simulated device, too" OFF)
# As the environment says it, not as it was at the first configuration.
set(zero_gpu_all ${ZERO_TEST_GPU_ALL})
set(zero_gpu_simulated ${ZERO_TEST_GPU_SIMULATED})
if(DEFINED ENV{ZERO_FULL})
  set(zero_gpu_all ON)
  set(zero_gpu_simulated ON)
endif()

if(NOT TARGET zero_cuda OR NOT TARGET zero_nccl_headers)
  return()
endif()
if(NOT ZERO_BUILD_TESTS AND NOT ZERO_BUILD_BENCH)
  return()
endif()

add_library(zero_gpu_kernels STATIC)
target_link_libraries(zero_gpu_kernels PUBLIC zero::cuda zero::nccl_headers)
if(zero_gpu_all)
  zero_cuda_kernels(zero_gpu_kernels OPTIMIZERS adamw adam sgd lion
    PRECISIONS fp32 bf16_mixed fp16_mixed bf16_mixed_fp32_gradients bf16_remainder)
  target_compile_definitions(zero_gpu_kernels PUBLIC ZERO_TEST_GPU_ALL=1)
else()
  zero_cuda_kernels(zero_gpu_kernels OPTIMIZERS adamw PRECISIONS bf16_mixed)
endif()
