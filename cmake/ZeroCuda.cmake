# SPDX-License-Identifier: Apache-2.0
# zero::cuda, device code for NVIDIA GPUs, where a CUDA toolkit is found (12.0 or newer). A backend
# that needs more than the toolkit (zero::nccl) is made by a file of its own, after this one.

find_package(CUDAToolkit 12.0 QUIET)
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
  set(zero_cuda_default ON)
else()
  set(zero_cuda_default OFF)
endif()
option(ZERO_ENABLE_CUDA "Build what needs the CUDA toolkit" ${zero_cuda_default})
set(ZERO_CUDA_ARCHITECTURES 90 CACHE STRING
  "GPUs that tests, examples and benchmarks are compiled for, as in CMAKE_CUDA_ARCHITECTURES")

if(NOT ZERO_ENABLE_CUDA)
  message(STATUS "zero: no CUDA, so zero::cuda and what needs it are left out")
  return()
endif()
if(NOT zero_cuda_default)
  message(FATAL_ERROR "ZERO_ENABLE_CUDA is on, but there is no CUDA toolkit 12.0 or newer with nvcc "
    "(CUDAToolkit_ROOT says where to look)")
endif()

if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "${ZERO_CUDA_ARCHITECTURES}")
endif()
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
endif()
enable_language(CUDA)
include("${CMAKE_CURRENT_LIST_DIR}/ZeroCudaKernels.cmake")

file(GLOB zero_cuda_headers CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/include/zero/kernels/cuda/*.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/kernels/cuda/*.cuh")

add_library(zero_cuda INTERFACE)
add_library(zero::cuda ALIAS zero_cuda)
set_target_properties(zero_cuda PROPERTIES EXPORT_NAME cuda)
target_sources(zero_cuda INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${zero_cuda_headers})
target_link_libraries(zero_cuda INTERFACE zero CUDA::cudart)

if(ZERO_INSTALL)
  install(TARGETS zero_cuda EXPORT zero-cuda-export FILE_SET HEADERS)
  install(EXPORT zero-cuda-export NAMESPACE zero:: DESTINATION "${zero_package_dir}")
  # What find_package(zero COMPONENTS cuda) reads: the target, and the function that adds kernels.
  file(WRITE "${PROJECT_BINARY_DIR}/zero-cuda-targets.cmake"
    "find_dependency(CUDAToolkit 12.0)\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/zero-cuda-export.cmake\")\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/ZeroCudaKernels.cmake\")\n")
  install(FILES "${PROJECT_BINARY_DIR}/zero-cuda-targets.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/ZeroCudaKernels.cmake" DESTINATION "${zero_package_dir}")
endif()
