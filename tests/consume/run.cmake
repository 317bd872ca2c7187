# SPDX-License-Identifier: Apache-2.0
# Configures, builds and runs the project beside this file in one of three ways.

file(REMOVE_RECURSE "${scratch}")
file(MAKE_DIRECTORY "${scratch}")
set(configure
  "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${scratch}/build" -G "${generator}"
  "-DCMAKE_CXX_COMPILER=${compiler}" "-DZERO_WAY=${way}" "-DZERO_SOURCE_DIR=${source}"
  "-DCMAKE_PREFIX_PATH=${scratch}/prefix")

if(NOT way STREQUAL "add_subdirectory")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" --install "${build}" --prefix "${scratch}/prefix"
    COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endif()

if(way STREQUAL "missing_component")
  execute_process(COMMAND ${configure} RESULT_VARIABLE result ERROR_VARIABLE errors OUTPUT_QUIET)
  if(result EQUAL 0)
    message(FATAL_ERROR "find_package accepted a component that does not exist")
  elseif(NOT errors MATCHES "no_such_component")
    message(FATAL_ERROR "the error does not name the component:\n${errors}")
  endif()
  return()
endif()

execute_process(COMMAND ${configure} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${scratch}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${scratch}/build/consumer" COMMAND_ERROR_IS_FATAL ANY)
