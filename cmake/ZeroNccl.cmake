# SPDX-License-Identifier: Apache-2.0
# zero::nccl, the backends for CUDA devices that need no nvcc: NCCL, and threads that share devices.
# The target exists where the headers of the CUDA runtime and of NCCL are found; the libraries are
# linked where they are found, too, so that tests can put a simulated device in their place.

find_package(CUDAToolkit 12.0 QUIET)
find_path(ZERO_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
  DOC "Where the header of NCCL lies")
find_library(ZERO_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR}
  DOC "The library of NCCL 2.18.1 or newer")
mark_as_advanced(ZERO_NCCL_INCLUDE_DIR ZERO_NCCL_LIBRARY)
if(NOT CUDAToolkit_FOUND OR NOT ZERO_NCCL_INCLUDE_DIR)
  message(STATUS "zero: no CUDA toolkit 12.0 with NCCL, so zero::nccl and the tests of the simulated "
    "device are left out")
  return()
endif()

file(GLOB zero_nccl_headers CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/include/zero/cuda.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/cuda/*.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/detail/cuda_executor.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/detail/cuda_operations.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/detail/cuda_reports.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/detail/cuda_update_flow.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/backends/nccl.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/backends/nccl/*.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/backends/cuda_threads.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/backends/cuda_threads/*.hpp")

# The headers alone; what a program links is zero::nccl.
add_library(zero_nccl_headers INTERFACE)
add_library(zero::nccl_headers ALIAS zero_nccl_headers)
set_target_properties(zero_nccl_headers PROPERTIES EXPORT_NAME nccl_headers)
target_sources(zero_nccl_headers INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${zero_nccl_headers})
target_link_libraries(zero_nccl_headers INTERFACE zero)
target_include_directories(zero_nccl_headers SYSTEM INTERFACE
  "$<BUILD_INTERFACE:${CUDAToolkit_INCLUDE_DIRS}>" "$<BUILD_INTERFACE:${ZERO_NCCL_INCLUDE_DIR}>")

if(TARGET CUDA::cudart AND ZERO_NCCL_LIBRARY)
  add_library(zero_nccl INTERFACE)
  add_library(zero::nccl ALIAS zero_nccl)
  set_target_properties(zero_nccl PROPERTIES EXPORT_NAME nccl)
  target_link_libraries(zero_nccl INTERFACE zero_nccl_headers CUDA::cudart
    "$<BUILD_INTERFACE:${ZERO_NCCL_LIBRARY}>")
endif()

if(ZERO_INSTALL AND TARGET zero_nccl)
  install(TARGETS zero_nccl zero_nccl_headers EXPORT zero-nccl-export FILE_SET HEADERS)
  install(EXPORT zero-nccl-export NAMESPACE zero:: DESTINATION "${zero_package_dir}")
  # What find_package(zero COMPONENTS nccl) reads: NCCL may lie elsewhere on that machine.
  file(WRITE "${PROJECT_BINARY_DIR}/zero-nccl-targets.cmake"
    "find_dependency(CUDAToolkit 12.0)\n"
    "find_path(ZERO_NCCL_INCLUDE_DIR nccl.h HINTS \${CUDAToolkit_INCLUDE_DIRS} REQUIRED)\n"
    "find_library(ZERO_NCCL_LIBRARY nccl HINTS \${CUDAToolkit_LIBRARY_DIR} REQUIRED)\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/zero-nccl-export.cmake\")\n"
    "target_include_directories(zero::nccl_headers SYSTEM INTERFACE\n"
    "  \${CUDAToolkit_INCLUDE_DIRS} \${ZERO_NCCL_INCLUDE_DIR})\n"
    "target_link_libraries(zero::nccl INTERFACE \${ZERO_NCCL_LIBRARY})\n")
  install(FILES "${PROJECT_BINARY_DIR}/zero-nccl-targets.cmake" DESTINATION "${zero_package_dir}")
endif()
