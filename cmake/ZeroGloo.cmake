# SPDX-License-Identifier: Apache-2.0
# zero::gloo, the backend for processes on one or several hosts, where Gloo is found (libgloo-dev).

# Other projects define a target of that name, too; what they found is what the program links.
if(NOT TARGET gloo)
  find_package(Gloo CONFIG QUIET)
endif()
if(NOT TARGET gloo)
  message(STATUS "zero: no Gloo (libgloo-dev), so zero::gloo and its tests are left out")
  return()
endif()

file(GLOB zero_gloo_headers CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/include/zero/backends/gloo.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/backends/gloo/*.hpp")

add_library(zero_gloo INTERFACE)
add_library(zero::gloo ALIAS zero_gloo)
set_target_properties(zero_gloo PROPERTIES EXPORT_NAME gloo)
target_sources(zero_gloo INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${zero_gloo_headers})
target_link_libraries(zero_gloo INTERFACE zero gloo)

if(ZERO_INSTALL)
  install(TARGETS zero_gloo EXPORT zero-gloo-export FILE_SET HEADERS)
  install(EXPORT zero-gloo-export NAMESPACE zero:: DESTINATION "${zero_package_dir}")
  # What find_package(zero COMPONENTS gloo) reads: the target needs Gloo's own.
  file(WRITE "${PROJECT_BINARY_DIR}/zero-gloo-targets.cmake"
    "if(NOT TARGET gloo)\n"
    "  find_dependency(Gloo CONFIG)\n"
    "endif()\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/zero-gloo-export.cmake\")\n")
  install(FILES "${PROJECT_BINARY_DIR}/zero-gloo-targets.cmake" DESTINATION "${zero_package_dir}")
endif()
