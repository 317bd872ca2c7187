# SPDX-License-Identifier: Apache-2.0
# zero::zero, the header-only core: the C++ standard library and threads, nothing else.

find_package(Threads REQUIRED)

file(GLOB_RECURSE zero_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/zero/*.hpp")
# A header that needs a third party belongs to a target of its own, made where that party is found.
set(zero_third_party_headers
  "backends/(gloo|mpi|nccl|cuda_threads)(/.*)?"
  "rendezvous/(tcp_store|tcp_store_server|open_store|detail/tcp_[a-z]+)"
  "kernels/cuda/.*"
  "cuda|cuda/.*"
  "detail/cuda_(executor|operations|reports|update_flow)"
  "adapters/(thrust|libtorch)(/.*)?")
list(JOIN zero_third_party_headers "|" zero_third_party_headers)
list(FILTER zero_headers EXCLUDE REGEX "/zero/(${zero_third_party_headers})\\.hpp$")

add_library(zero INTERFACE)
add_library(zero::zero ALIAS zero)
target_sources(zero INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${zero_headers})
target_compile_features(zero INTERFACE cxx_std_20)
target_link_libraries(zero INTERFACE Threads::Threads)
