# SPDX-License-Identifier: Apache-2.0
# The compiled device code: what it consists of, that it links, and what is said where it is missing.
# Nothing here needs a GPU. Included by tests/CMakeLists.txt.

set(zero_kernel_tests "${CMAKE_CURRENT_LIST_DIR}")
set(zero_kernel_optimizers adamw adam sgd lion)
set(zero_kernel_precisions fp32 bf16_mixed fp16_mixed bf16_mixed_fp32_gradients bf16_remainder)
if(DEFINED ENV{ZERO_FULL})
  set(zero_kernel_architectures 80 90 100)
else()
  set(zero_kernel_architectures ${ZERO_CUDA_ARCHITECTURES})
endif()

# Needs no nvcc: the linker's message where no file instantiates the kernels.
add_test(NAME kernels_ptx.missing_instantiation
  COMMAND "${ZERO_PYTHON}" "${zero_kernel_tests}/missing_instantiation.py" "${CMAKE_CXX_COMPILER}"
    -std=c++20 -I "${PROJECT_SOURCE_DIR}/include" "${zero_kernel_tests}/uses_kernels.cpp")
zero_set_test_properties(kernels_ptx.missing_instantiation LABELS kernel_host TIMEOUT 180)

# Adds a test that needs the toolkit. Where there is none it is only counted.
function(zero_add_cuda_test name)
  set_property(GLOBAL APPEND PROPERTY zero_cuda_tests "${name}")
  if(TARGET zero_cuda)
    add_test(NAME "${name}" COMMAND ${ARGN})
    zero_set_test_properties("${name}" LABELS gpu_compile)
  endif()
endfunction()

# Compiles source to output with nvcc alone; further arguments are nvcc's.
function(zero_add_nvcc_output output source)
  add_custom_command(OUTPUT "${output}"
    COMMAND "${CMAKE_CUDA_COMPILER}" -std=c++20 "-ccbin=${CMAKE_CUDA_HOST_COMPILER}"
      -I "${PROJECT_SOURCE_DIR}/include" -MD -MF "${output}.d" ${ARGN} -o "${output}" "${source}"
    DEPENDS "${source}" DEPFILE "${output}.d"
    COMMENT "Compiling device code to ${output}" VERBATIM)
endfunction()

set(zero_kernel_folder "${CMAKE_CURRENT_BINARY_DIR}/kernels_ptx")
set(zero_kernel_outputs)
if(TARGET zero_cuda)
  file(MAKE_DIRECTORY "${zero_kernel_folder}")
  add_executable(zero_kernel_expectations "${zero_kernel_tests}/expectations.cpp")
  target_include_directories(zero_kernel_expectations PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(zero_kernel_expectations PRIVATE zero::zero zero_dev_flags)
  zero_write_cuda_kernels(zero_kernel_files "${zero_kernel_folder}"
    OPTIMIZERS ${zero_kernel_optimizers} PRECISIONS ${zero_kernel_precisions})
endif()

foreach(precision IN LISTS zero_kernel_precisions)
  set(base "${zero_kernel_folder}/${precision}")
  set(cubins)
  foreach(architecture IN LISTS zero_kernel_architectures)
    list(APPEND cubins "${base}.sm_${architecture}.cubin")
    if(TARGET zero_cuda)
      zero_add_nvcc_output("${base}.sm_${architecture}.cubin" "${base}.cu"
        -cubin "-arch=sm_${architecture}" -Werror all-warnings)
    endif()
  endforeach()
  zero_add_cuda_test("kernels_ptx.${precision}" "${ZERO_PYTHON}" "${zero_kernel_tests}/check.py"
    $<TARGET_FILE:zero_kernel_expectations> "${precision}" ${cubins})
  list(APPEND zero_kernel_outputs ${cubins})

  # Explicit fma, and no other sum that a compiler could contract.
  if(TARGET zero_cuda)
    zero_add_nvcc_output("${base}.fmad.ptx" "${base}.cu" -ptx -arch=sm_90 -fmad=true)
    zero_add_nvcc_output("${base}.no_fmad.ptx" "${base}.cu" -ptx -arch=sm_90 -fmad=false)
  endif()
  zero_add_cuda_test("kernels_ptx.contraction.${precision}" "${ZERO_PYTHON}"
    "${zero_kernel_tests}/check.py" --same "${base}.fmad.ptx" "${base}.no_fmad.ptx")
  list(APPEND zero_kernel_outputs "${base}.fmad.ptx" "${base}.no_fmad.ptx")
endforeach()

list(GET zero_kernel_architectures 0 architecture)
if(TARGET zero_cuda)
  zero_add_nvcc_output("${zero_kernel_folder}/faulty.cubin" "${zero_kernel_tests}/faulty.cu"
    -cubin "-arch=sm_${architecture}")
  add_custom_target(zero_kernel_binaries ALL
    DEPENDS ${zero_kernel_outputs} "${zero_kernel_folder}/faulty.cubin")
endif()
zero_add_cuda_test(kernels_ptx.faulty_kernels_are_reported
  "${ZERO_PYTHON}" "${zero_kernel_tests}/check.py" $<TARGET_FILE:zero_kernel_expectations>
  bf16_mixed "${zero_kernel_folder}/bf16_mixed.sm_${architecture}.cubin"
  --failing "${zero_kernel_folder}/faulty.cubin")

# A program whose own files never see nvcc.
if(TARGET zero_cuda)
  add_executable(zero_uses_kernels "${zero_kernel_tests}/uses_kernels.cpp")
  target_link_libraries(zero_uses_kernels PRIVATE zero::zero)
  zero_cuda_kernels(zero_uses_kernels OPTIMIZERS adamw PRECISIONS bf16_mixed)
endif()
zero_add_cuda_test(kernels_ptx.links_without_nvcc $<TARGET_FILE:zero_uses_kernels>)

# A program that has nvcc compile all of it; that it compiles is the test.
if(TARGET zero_cuda)
  add_library(zero_engine_in_cuda_file OBJECT "${zero_kernel_tests}/engine_in_cuda_file.cu")
  set_target_properties(zero_engine_in_cuda_file PROPERTIES CUDA_STANDARD 20)
  target_compile_options(zero_engine_in_cuda_file PRIVATE "SHELL:-Werror all-warnings")
  target_link_libraries(zero_engine_in_cuda_file PRIVATE zero::cuda)
endif()

include("${zero_kernel_tests}/engine_over_nccl.cmake")
include("${zero_kernel_tests}/thrust.cmake")

# One visible line where the toolkit is missing; a failure where it must not be.
get_property(zero_cuda_tests GLOBAL PROPERTY zero_cuda_tests)
list(LENGTH zero_cuda_tests zero_cuda_test_count)
if(NOT TARGET zero_cuda)
  set(zero_cuda_reason "CUDA toolkit not found")
  if(zero_cuda_default)
    set(zero_cuda_reason "CUDA is switched off")
  endif()
  set(zero_cuda_line "${zero_cuda_reason}: 0 of ${zero_cuda_test_count} CUDA tests run")
  message(STATUS "zero: ${zero_cuda_line}")
  add_test(NAME kernels_ptx.toolkit COMMAND "${CMAKE_COMMAND}"
    -D "line=${zero_cuda_line}" -P "${zero_kernel_tests}/toolkit_missing.cmake")
  zero_set_test_properties(kernels_ptx.toolkit LABELS gpu_compile)
  set_tests_properties(kernels_ptx.toolkit PROPERTIES SKIP_REGULAR_EXPRESSION "^-- CUDA")
endif()
