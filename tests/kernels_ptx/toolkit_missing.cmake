# SPDX-License-Identifier: Apache-2.0
# Stands for the tests that were left out because there is no CUDA: says so, and fails where
# ZERO_REQUIRE_CUDA=1 asks for them.
if("$ENV{ZERO_REQUIRE_CUDA}" STREQUAL "1")
  message(FATAL_ERROR "${line}, but ZERO_REQUIRE_CUDA=1")
endif()
message(STATUS "${line}")
