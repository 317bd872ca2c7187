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
