# SPDX-License-Identifier: Apache-2.0
# Warnings for the project's own tests, examples and benchmarks; never installed or exported.

add_library(zero_dev_flags INTERFACE)
target_compile_options(zero_dev_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
  $<$<BOOL:${ZERO_WARNINGS_AS_ERRORS}>:-Werror>
  $<$<CXX_COMPILER_ID:GNU>:-fconcepts-diagnostics-depth=3>)
