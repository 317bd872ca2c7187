# SPDX-License-Identifier: Apache-2.0
# zero::thrust, the adapter for Thrust, where Thrust's headers are found: in a CUDA toolkit, or in a
# copy of CCCL of its own (ZERO_THRUST_INCLUDE_DIR). Which of its systems a file uses is the file's
# choice, so nothing else comes along: no THRUST_DEVICE_SYSTEM, no OpenMP, no nvcc.

find_package(CUDAToolkit 12.0 QUIET)
# From CUDA 13 on Thrust lies one folder deeper, where nvcc looks and other compilers do not.
find_path(ZERO_THRUST_INCLUDE_DIR thrust/version.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES cccl .
  DOC "Where the folder thrust/ of Thrust lies")
mark_as_advanced(ZERO_THRUST_INCLUDE_DIR)
set(zero_thrust_version 0)
if(ZERO_THRUST_INCLUDE_DIR)
  file(STRINGS "${ZERO_THRUST_INCLUDE_DIR}/thrust/version.h" line LIMIT_COUNT 1
    REGEX "^#define THRUST_VERSION ")
  string(REGEX MATCH "[0-9]+" zero_thrust_version "${line}")
endif()
if(zero_thrust_version LESS 200000)
  message(STATUS "zero: no Thrust 2.0 or newer (CUDA toolkit 12 or CCCL), so zero::thrust and its "
    "tests are left out")
  return()
endif()

file(GLOB zero_thrust_headers CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/include/zero/adapters/thrust.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/adapters/thrust/*.hpp")

add_library(zero_thrust INTERFACE)
add_library(zero::thrust ALIAS zero_thrust)
set_target_properties(zero_thrust PROPERTIES EXPORT_NAME thrust)
target_sources(zero_thrust INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${zero_thrust_headers})
target_link_libraries(zero_thrust INTERFACE zero)
# nvcc brings the Thrust of its own toolkit; another one before it would be a mixture of both.
set(zero_thrust_include_dirs ${ZERO_THRUST_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_include_directories(zero_thrust SYSTEM INTERFACE
  "$<BUILD_INTERFACE:$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${zero_thrust_include_dirs}>>")

# The tests of Thrust's OMP system name this target. Elsewhere than with g++ they are left out:
# clang's OpenMP is a package of its own.
if(ZERO_BUILD_TESTS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_package(OpenMP QUIET COMPONENTS CXX)
endif()

if(ZERO_INSTALL)
  install(TARGETS zero_thrust EXPORT zero-thrust-export FILE_SET HEADERS)
  install(EXPORT zero-thrust-export NAMESPACE zero:: DESTINATION "${zero_package_dir}")
  # What find_package(zero COMPONENTS thrust) reads: Thrust may lie elsewhere on that machine.
  file(WRITE "${PROJECT_BINARY_DIR}/zero-thrust-targets.cmake"
    "find_package(CUDAToolkit 12.0 QUIET)\n"
    "find_path(ZERO_THRUST_INCLUDE_DIR thrust/version.h\n"
    "  HINTS \${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES cccl . REQUIRED)\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/zero-thrust-export.cmake\")\n"
    "set(zero_thrust_include_dirs \${ZERO_THRUST_INCLUDE_DIR} \${CUDAToolkit_INCLUDE_DIRS})\n"
    "target_include_directories(zero::thrust SYSTEM INTERFACE\n"
    "  \"\$<\$<NOT:\$<COMPILE_LANGUAGE:CUDA>>:\${zero_thrust_include_dirs}>\")\n")
  install(FILES "${PROJECT_BINARY_DIR}/zero-thrust-targets.cmake" DESTINATION "${zero_package_dir}")
endif()
