# SPDX-License-Identifier: Apache-2.0
# zero::rendezvous: the stores that ranks of several processes meet in. Its headers use standalone
# Asio, which has headers only; without it the target does not exist.

find_path(ZERO_ASIO_INCLUDE_DIR asio.hpp DOC "Where the headers of standalone Asio lie")
mark_as_advanced(ZERO_ASIO_INCLUDE_DIR)
if(NOT ZERO_ASIO_INCLUDE_DIR)
  message(STATUS "zero: zero::rendezvous is left out, it needs standalone Asio (libasio-dev)")
  return()
endif()

file(GLOB zero_rendezvous_headers CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/include/zero/rendezvous/tcp_*.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/rendezvous/open_store.hpp"
  "${PROJECT_SOURCE_DIR}/include/zero/rendezvous/detail/tcp_*.hpp")

add_library(zero_rendezvous INTERFACE)
add_library(zero::rendezvous ALIAS zero_rendezvous)
set_target_properties(zero_rendezvous PROPERTIES EXPORT_NAME rendezvous)
target_sources(zero_rendezvous INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${zero_rendezvous_headers})
target_link_libraries(zero_rendezvous INTERFACE zero)
# A folder that the compiler searches anyway must not be moved to another place in its order.
if(NOT ZERO_ASIO_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
  target_include_directories(zero_rendezvous SYSTEM INTERFACE
    "$<BUILD_INTERFACE:${ZERO_ASIO_INCLUDE_DIR}>")
endif()

if(ZERO_INSTALL)
  install(TARGETS zero_rendezvous EXPORT zero-rendezvous-export FILE_SET HEADERS)
  install(EXPORT zero-rendezvous-export NAMESPACE zero:: DESTINATION "${zero_package_dir}")
  # What find_package(zero COMPONENTS rendezvous) reads: Asio may lie elsewhere on that machine.
  file(WRITE "${PROJECT_BINARY_DIR}/zero-rendezvous-targets.cmake"
    "find_path(ZERO_ASIO_INCLUDE_DIR asio.hpp REQUIRED)\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/zero-rendezvous-export.cmake\")\n"
    "if(NOT ZERO_ASIO_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)\n"
    "  target_include_directories(zero::rendezvous SYSTEM INTERFACE \"\${ZERO_ASIO_INCLUDE_DIR}\")\n"
    "endif()\n")
  install(FILES "${PROJECT_BINARY_DIR}/zero-rendezvous-targets.cmake"
    DESTINATION "${zero_package_dir}")
endif()
