# SPDX-License-Identifier: Apache-2.0
# A program with an engine over NCCL: a file that g++ compiles and one .cu file. Compiled once, it is
# linked with the CUDA runtime and NCCL, with the simulated device, and without the .cu file.
# Included by kernels.cmake, after what that file does for every test that needs the toolkit.

# What is missing without the .cu file, from objects of both compilers. Needs no nvcc.
if(TARGET zero_nccl)
  add_library(zero_engine_over_nccl_host OBJECT "${zero_kernel_tests}/engine_over_nccl.cpp")
  # Data are small and templates are many.
  target_compile_options(zero_engine_over_nccl_host PRIVATE -O0)
  target_link_libraries(zero_engine_over_nccl_host PRIVATE zero::nccl_headers zero_dev_flags)

  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS}")
  set(libraries $<TARGET_FILE:CUDA::cudart> "${ZERO_NCCL_LIBRARY}")
  add_test(NAME kernels_ptx.missing_instantiation.engine
    COMMAND "${ZERO_PYTHON}" "${zero_kernel_tests}/missing_instantiation.py" "${CMAKE_CXX_COMPILER}"
      ${flags} $<TARGET_OBJECTS:zero_engine_over_nccl_host> ${libraries})
  zero_set_test_properties(kernels_ptx.missing_instantiation.engine LABELS kernel_host)
  zero_misuse_compilers(compilers)
  list(GET compilers -1 clang)
  if(NOT clang STREQUAL CMAKE_CXX_COMPILER)
    list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND "-isystem;" OUTPUT_VARIABLE cuda_folders)
    add_test(NAME kernels_ptx.missing_instantiation.engine.clang
      COMMAND "${ZERO_PYTHON}" "${zero_kernel_tests}/missing_instantiation.py" "${clang}"
        -std=c++20 -I "${PROJECT_SOURCE_DIR}/include" ${cuda_folders}
        -isystem "${ZERO_NCCL_INCLUDE_DIR}" "${zero_kernel_tests}/engine_over_nccl.cpp"
        ${libraries})
    zero_set_test_properties(kernels_ptx.missing_instantiation.engine.clang
      LABELS kernel_host TIMEOUT 180)
  endif()
endif()

if(TARGET zero_cuda AND NOT TARGET zero_nccl)
  message(STATUS "zero: no NCCL, so engine_over_nccl.cpp is not linked")
  return()
endif()

if(TARGET zero_cuda)
  add_library(zero_engine_over_nccl_kernels OBJECT)
  zero_cuda_kernels(zero_engine_over_nccl_kernels OPTIMIZERS adamw PRECISIONS bf16_mixed)
  set(objects $<TARGET_OBJECTS:zero_engine_over_nccl_host>
    $<TARGET_OBJECTS:zero_engine_over_nccl_kernels>)

  add_executable(zero_engine_over_nccl ${objects})
  set_target_properties(zero_engine_over_nccl PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(zero_engine_over_nccl PRIVATE zero::nccl)

  add_executable(zero_engine_over_nccl_simulated
    "${zero_kernel_tests}/engine_over_nccl_simulated.cpp" ${objects})
  set_target_properties(zero_engine_over_nccl_simulated PROPERTIES
    LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY None)
  target_link_options(zero_engine_over_nccl_simulated PRIVATE LINKER:--wrap=main)
  target_link_libraries(zero_engine_over_nccl_simulated PRIVATE zero_simulated_device)
endif()

zero_add_cuda_test(kernels_ptx.engine_over_nccl
  "${ZERO_PYTHON}" "${zero_kernel_tests}/engine_over_nccl.py" $<TARGET_FILE:zero_engine_over_nccl>)
zero_add_cuda_test(kernels_ptx.engine_over_nccl.simulated
  "${ZERO_PYTHON}" "${zero_kernel_tests}/engine_over_nccl.py"
  --simulated $<TARGET_FILE:zero_engine_over_nccl_simulated>)
if(TARGET zero_cuda)
  zero_set_test_properties(kernels_ptx.engine_over_nccl LABELS gpu_compile gpu)
  zero_set_test_properties(kernels_ptx.engine_over_nccl.simulated
    LABELS gpu_compile simulated_device multi_rank)
endif()
