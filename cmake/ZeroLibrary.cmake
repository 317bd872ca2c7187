# SPDX-License-Identifier: Apache-2.0
# zero::zero, the header-only core: the C++ standard library and threads, nothing else.

find_package(Threads REQUIRED)

file(GLOB_RECURSE zero_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/zero/*.hpp")
# A header that needs a third party belongs to a target of its own, made where that party is found.
list(FILTER zero_headers EXCLUDE REGEX "/zero/(backends/(gloo|mpi|nccl|cuda_threads)(/.*)?|kernels/cuda/.*|adapters/(thrust|libtorch))\\.hpp$")

add_library(zero INTERFACE)
add_library(zero::zero ALIAS zero)
target_sources(zero INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${zero_headers})
target_compile_features(zero INTERFACE cxx_std_20)
target_link_libraries(zero INTERFACE Threads::Threads)
