# SPDX-License-Identifier: Apache-2.0
# zero::mpi, ranks as processes of an MPI job, where an MPI 3 library is installed. Its headers are
# C only: the C++ bindings that some libraries still ship are neither needed nor pulled in.

set(MPI_CXX_SKIP_MPICXX TRUE)
find_package(MPI 3.0 QUIET COMPONENTS CXX)
if(NOT TARGET MPI::MPI_CXX)
  message(STATUS "zero: no MPI library was found, zero::mpi is left out")
  return()
endif()

add_library(zero_mpi INTERFACE)
add_library(zero::mpi ALIAS zero_mpi)
set_target_properties(zero_mpi PROPERTIES EXPORT_NAME mpi)
file(GLOB zero_mpi_headers CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/include/zero/backends/mpi.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/backends/mpi/*.hpp")
target_sources(zero_mpi INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${zero_mpi_headers})
target_link_libraries(zero_mpi INTERFACE zero MPI::MPI_CXX)

if(ZERO_INSTALL)
  install(TARGETS zero_mpi EXPORT zero-mpi-export FILE_SET HEADERS)
  install(EXPORT zero-mpi-export NAMESPACE zero:: DESTINATION "${zero_package_dir}")
  # What find_package(zero COMPONENTS mpi) reads: the target needs MPI's own.
  file(WRITE "${PROJECT_BINARY_DIR}/zero-mpi-targets.cmake"
    "set(MPI_CXX_SKIP_MPICXX TRUE)\n"
    "find_dependency(MPI 3.0 COMPONENTS CXX)\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/zero-mpi-export.cmake\")\n")
  install(FILES "${PROJECT_BINARY_DIR}/zero-mpi-targets.cmake" DESTINATION "${zero_package_dir}")
endif()
