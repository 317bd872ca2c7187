# SPDX-License-Identifier: Apache-2.0
# Checks that read or compile sources instead of running a built test program.

set(include_dir "${PROJECT_SOURCE_DIR}/include")

# Layers, first lines, file sizes.
add_test(NAME source.layering
  COMMAND "${ZERO_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/layering.py" "${PROJECT_SOURCE_DIR}")
zero_set_test_properties(source.layering LABELS static)
add_test(NAME source.layering_detects
  COMMAND "${ZERO_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/layering.py" --self-test)
zero_set_test_properties(source.layering_detects LABELS static)

# The include folders of what a target wraps.
function(zero_third_party_dirs result target)
  set(dirs)
  if(target STREQUAL "zero_mpi")
    set(dirs ${MPI_CXX_INCLUDE_DIRS})
  elseif(target MATCHES "cuda|nccl")
    set(dirs ${CUDAToolkit_INCLUDE_DIRS} ${ZERO_NCCL_INCLUDE_DIR})
  endif()
  set(${result} "${dirs}" PARENT_SCOPE)
endfunction()

# Each header alone, and all of them together in two translation units. The parts of a header, in
# folders of details, come alone under ZERO_FULL only: a program never names them.
# Those of a third party are checked where it was found, with its include folders.
set(header_names)
foreach(target IN ITEMS zero zero_rendezvous zero_gloo zero_mpi zero_cuda zero_nccl_headers)
  if(NOT TARGET ${target})
    continue()
  endif()
  get_target_property(header_files ${target} HEADER_SET)
  zero_third_party_dirs(third_party_dirs "${target}")
  if(target MATCHES "cuda|nccl")
    list(FILTER header_files INCLUDE REGEX "\\.hpp$")  # device code is compiled by nvcc elsewhere
  endif()
  foreach(header IN LISTS header_files)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY "${include_dir}")
    if(target STREQUAL "zero")
      list(APPEND header_names "${header}")
    endif()
    if(NOT DEFINED ENV{ZERO_FULL} AND header MATCHES "/detail/|^zero/(adapters|backends)/.*/")
      continue()
    endif()
    string(REPLACE "/" "." name "headers.${header}")
    add_test(NAME "${name}"
      COMMAND "${ZERO_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/headers/alone.py"
        "${CMAKE_CXX_COMPILER}" "${include_dir}" "${header}" ${third_party_dirs})
    zero_set_test_properties("${name}" LABELS static)
  endforeach()
endforeach()
add_test(NAME headers.together
  COMMAND "${ZERO_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/headers/together.py"
    "${CMAKE_CXX_COMPILER}" "${include_dir}" "${CMAKE_CURRENT_BINARY_DIR}/headers" ${header_names})
zero_set_test_properties(headers.together LABELS static TIMEOUT 120)

# Programs that must not compile, and the message they must be refused with.
file(GLOB misuses CONFIGURE_DEPENDS compile_fail/*.cpp)
zero_misuse_compilers(misuse_compilers)
foreach(compiler IN LISTS misuse_compilers)
  cmake_path(GET compiler FILENAME compiler_name)
  foreach(misuse IN LISTS misuses)
    cmake_path(GET misuse STEM stem)
    zero_read_tag("${misuse}" links target)
    if(target AND NOT TARGET "${target}")
      message(STATUS "zero: compile_fail.${stem} is left out, it needs ${target}")
      continue()
    endif()
    zero_third_party_dirs(third_party_dirs "${target}")
    set(name "compile_fail.${stem}.${compiler_name}")
    add_test(NAME "${name}"
      COMMAND "${ZERO_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/check.py"
        "${compiler}" "${include_dir}" "${misuse}" ${third_party_dirs})
    zero_set_test_properties("${name}" LABELS compile_fail)
  endforeach()
endforeach()

# Users' projects: the installed package, a missing component, and a subdirectory.
if(ZERO_INSTALL)
  foreach(way IN ITEMS find_package missing_component add_subdirectory)
    add_test(NAME consume.${way}
      COMMAND "${CMAKE_COMMAND}"
        -D way=${way}
        -D "source=${PROJECT_SOURCE_DIR}" -D "build=${PROJECT_BINARY_DIR}"
        -D "scratch=${CMAKE_CURRENT_BINARY_DIR}/consume/a path with a space/${way}"
        -D "generator=${CMAKE_GENERATOR}" -D "compiler=${CMAKE_CXX_COMPILER}"
        -P "${CMAKE_CURRENT_SOURCE_DIR}/consume/run.cmake")
    zero_set_test_properties(consume.${way} LABELS integration TIMEOUT 120)
  endforeach()
endif()
