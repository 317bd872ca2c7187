# SPDX-License-Identifier: Apache-2.0
# How tests are found and registered. A test file says what it needs in comments near its top:
#   // labels: multi_rank fault     further ctest labels (the folder's name is one already)
#   // timeout: 120                 seconds, where the default is too short
#   // links: some_target           further targets; the file is left out where one does not exist
#   // programs: train_gpt           left out where the programs are not built
# Python files use # in place of //.

set(ZERO_TEST_ONLY "" CACHE STRING "Build only test files with this label (empty: all)")
set(ZERO_TEST_WITHOUT "" CACHE STRING "Leave out test files with this label (empty: none)")
set(ZERO_TEST_LIGHT "" CACHE STRING
  "Folders whose tests are compiled without optimisation and with reduced counts: where templates are
  many and data are small, compiling for a sanitizer takes far longer than running")
set(ZERO_TEST_UNOPTIMISED "" CACHE STRING
  "Tests and examples whose programs match this regular expression are compiled without optimisation")
set(ZERO_TEST_MATCH "" CACHE STRING "Build only test files whose path matches this regular expression")
set(ZERO_TEST_TIMEOUT_FACTOR 1 CACHE STRING "Multiplies every timeout (sanitizers are slow)")
option(ZERO_TEST_SOURCE_CHECKS
  "Also check layers, headers, compile-time messages and packaging (once is enough)" ON)

find_program(ZERO_PYTHON NAMES python3 REQUIRED)

# The compilers whose messages for misuse are checked: the build's own, under ZERO_FULL clang++ too.
function(zero_misuse_compilers result)
  set(compilers "${CMAKE_CXX_COMPILER}")
  if(DEFINED ENV{ZERO_FULL} AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    find_program(ZERO_CLANGXX NAMES clang++)
    if(ZERO_CLANGXX)
      list(APPEND compilers "${ZERO_CLANGXX}")
    else()
      message(STATUS "zero: no clang++, its compile-time messages are not checked")
    endif()
  endif()
  set(${result} "${compilers}" PARENT_SCOPE)
endfunction()

# result: the words after "<tag>:" in the file's comments, as a list.
function(zero_read_tag file tag result)
  file(STRINGS "${file}" line LIMIT_COUNT 1 REGEX "^(//|#) ${tag}:")
  string(REGEX REPLACE "^(//|#) ${tag}: *" "" words "${line}")
  separate_arguments(words UNIX_COMMAND "${words}")
  set(${result} "${words}" PARENT_SCOPE)
endfunction()

# Reads a test file's comments into labels, timeout, links and selected: whether it belongs to this
# build.
macro(zero_read_test_file folder file)
  foreach(tag IN ITEMS labels timeout links programs)
    zero_read_tag("${file}" ${tag} ${tag})
  endforeach()
  list(PREPEND labels "${folder}")

  set(selected TRUE)
  if(ZERO_TEST_ONLY AND NOT ZERO_TEST_ONLY IN_LIST labels)
    set(selected FALSE)
  elseif(ZERO_TEST_WITHOUT AND ZERO_TEST_WITHOUT IN_LIST labels)
    set(selected FALSE)
  elseif(ZERO_TEST_MATCH AND NOT "${file}" MATCHES "${ZERO_TEST_MATCH}")
    set(selected FALSE)
  elseif(programs AND NOT ZERO_BUILD_PROGRAMS)
    set(selected FALSE)
  endif()
  foreach(target IN LISTS links programs)
    if(selected AND NOT TARGET "${target}")
      message(STATUS "zero: ${file} is left out, it needs ${target}")
      set(selected FALSE)
    endif()
  endforeach()
endmacro()

# Labels, timeout and environment of a ctest entry; every test gets them here.
function(zero_set_test_properties name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${ZERO_TEST_TIMEOUT_FACTOR}")
  set(processors 1)
  if("multi_rank" IN_LIST arg_LABELS)
    set(processors 2)
  endif()
  # Quoted: the path may hold a blank.
  set(environment
    "ZERO_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "LSAN_OPTIONS=print_suppressions=0:suppressions='${PROJECT_SOURCE_DIR}/tests/support/leaks.supp'")
  set_tests_properties("${name}" PROPERTIES
    LABELS "${arg_LABELS}"
    TIMEOUT ${timeout}
    PROCESSORS ${processors}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${environment}")
endfunction()

# tests/unit/kernels/update_test.cpp becomes unit.kernels.update
function(zero_test_name source result)
  string(REGEX REPLACE "(_test)?\\.[a-z]+$" "" name "${source}")
  string(REPLACE "/" "." name "${name}")
  set(${result} "${name}" PARENT_SCOPE)
endfunction()

# Every *_test.cpp below folder: one program per folder that holds some, one ctest entry per file.
function(zero_add_catch_tests folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}"
    "${folder}/*_test.cpp")
  foreach(source IN LISTS sources)
    zero_read_test_file("${folder}" "${source}")
    if(NOT selected)
      continue()
    endif()

    cmake_path(GET source PARENT_PATH program)
    cmake_path(GET source STEM stem)
    string(REPLACE "/" "_" program "test_${program}")
    if(NOT TARGET "${program}")
      add_executable("${program}")
      target_link_libraries("${program}" PRIVATE zero_catch_main zero_test_support)
      # Only these look at whole engines; the others need not wait for them to compile.
      if(folder STREQUAL "integration" AND TARGET zero_test_engines)
        target_link_libraries("${program}" PRIVATE zero_test_engines)
      endif()
      zero_optimise_as_chosen("${program}" "${folder}")
      if(folder IN_LIST ZERO_TEST_LIGHT)
        target_compile_definitions("${program}" PRIVATE ZERO_TEST_REDUCED=1)
      endif()
    endif()
    target_sources("${program}" PRIVATE "${source}")
    target_link_libraries("${program}" PRIVATE ${links})

    zero_test_name("${source}" name)
    add_test(NAME "${name}" COMMAND "${program}" --filenames-as-tags "[#${stem}]" -w NoTests)
    zero_set_test_properties("${name}" LABELS ${labels} TIMEOUT "${timeout}")
  endforeach()
endfunction()

# Every Python file below folder, run with the folder of the built programs as its argument.
function(zero_add_python_tests folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}"
    "${folder}/*.py")
  foreach(source IN LISTS sources)
    zero_read_test_file("${folder}" "${source}")
    if(selected)
      zero_test_name("${source}" name)
      add_test(NAME "${name}" COMMAND "${ZERO_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
        "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
      zero_set_test_properties("${name}" LABELS ${labels} TIMEOUT "${timeout}")
    endif()
  endforeach()
endfunction()
