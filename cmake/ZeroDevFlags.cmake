# SPDX-License-Identifier: Apache-2.0
# Warnings for the project's own tests, examples and benchmarks; never installed or exported.

add_library(zero_dev_flags INTERFACE)
# For C++: nvcc has warnings of its own.
target_compile_options(zero_dev_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wsign-conversion>"
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${ZERO_WARNINGS_AS_ERRORS}>>:-Werror>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${ZERO_WARNINGS_AS_ERRORS}>>:-Werror=all-warnings>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports overlapping copies behind checks that it inlined but could not evaluate, so that
  # one warning does not stop a build.
  target_compile_options(zero_dev_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fconcepts-diagnostics-depth=3>)
endif()

# Tests and numbered examples compute next to nothing: without optimisation where the settings of
# ZeroTest.cmake name the folder (ZERO_TEST_LIGHT) or the program (ZERO_TEST_UNOPTIMISED).
function(zero_optimise_as_chosen program folder)
  if(folder IN_LIST ZERO_TEST_LIGHT OR
     (ZERO_TEST_UNOPTIMISED AND program MATCHES "${ZERO_TEST_UNOPTIMISED}"))
    target_compile_options("${program}" PRIVATE -O0)
  endif()
endfunction()
