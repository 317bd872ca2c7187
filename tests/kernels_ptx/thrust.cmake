# SPDX-License-Identifier: Apache-2.0
# The adapter for Thrust: its headers alone, what it refuses to compile, and what nvcc makes of it.
# Included by kernels.cmake, after what that file does for every test that needs the toolkit.

set(zero_thrust_tests "${PROJECT_SOURCE_DIR}/tests/unit/adapters")

file(GLOB zero_thrust_misuses CONFIGURE_DEPENDS "${zero_thrust_tests}/thrust_compile_fail/*.cpp")

# What runs on the host is left out where Thrust was not found, and is counted then.
if(NOT TARGET zero_thrust)
  file(GLOB sources CONFIGURE_DEPENDS "${zero_thrust_tests}/thrust_*/*_test.cpp")
  set_property(GLOBAL APPEND PROPERTY zero_cuda_tests ${sources})
endif()
# Thrust alone will do for its systems on the host; these include the CUDA runtime's headers.
if(NOT TARGET zero_thrust OR NOT CUDAToolkit_FOUND)
  set_property(GLOBAL APPEND PROPERTY zero_cuda_tests ${zero_thrust_misuses})
else()
  get_target_property(header_files zero_thrust HEADER_SET)
  foreach(header IN LISTS header_files)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/include")
    string(REPLACE "/" "." name "headers.${header}")
    add_test(NAME "${name}"
      COMMAND "${ZERO_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/headers/alone.py"
        "${CMAKE_CXX_COMPILER}" "${PROJECT_SOURCE_DIR}/include" "${header}"
        ${zero_thrust_include_dirs})
    zero_set_test_properties("${name}" LABELS static)
  endforeach()

  # As the other misuses, with Thrust's headers where the compiler looks by itself.
  list(JOIN zero_thrust_include_dirs ":" zero_thrust_path)
  zero_misuse_compilers(misuse_compilers)
  foreach(compiler IN LISTS misuse_compilers)
    cmake_path(GET compiler FILENAME compiler_name)
    foreach(misuse IN LISTS zero_thrust_misuses)
      cmake_path(GET misuse STEM stem)
      set(name "compile_fail.thrust.${stem}.${compiler_name}")
      add_test(NAME "${name}"
        COMMAND "${CMAKE_COMMAND}" -E env "CPLUS_INCLUDE_PATH=${zero_thrust_path}"
          "${ZERO_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/check.py"
          "${compiler}" "${PROJECT_SOURCE_DIR}/include" "${misuse}")
      zero_set_test_properties("${name}" LABELS compile_fail)
    endforeach()
  endforeach()
endif()

set(zero_thrust_cuda "${zero_thrust_tests}/thrust_cuda/update.cu")
set(zero_thrust_outputs
  "${zero_kernel_folder}/thrust.sm_${architecture}.cubin"
  "${zero_kernel_folder}/thrust.fmad.ptx"
  "${zero_kernel_folder}/thrust.no_fmad.ptx")
if(TARGET zero_cuda)
  set(include_tests -I "${PROJECT_SOURCE_DIR}/tests")
  list(GET zero_thrust_outputs 0 cubin)
  zero_add_nvcc_output("${cubin}" "${zero_thrust_cuda}" ${include_tests}
    -cubin "-arch=sm_${architecture}" -Werror all-warnings)
  zero_add_nvcc_output("${zero_kernel_folder}/thrust.fmad.ptx" "${zero_thrust_cuda}"
    ${include_tests} -ptx "-arch=sm_${architecture}" -fmad=true)
  zero_add_nvcc_output("${zero_kernel_folder}/thrust.no_fmad.ptx" "${zero_thrust_cuda}"
    ${include_tests} -ptx "-arch=sm_${architecture}" -fmad=false)
  add_custom_target(zero_thrust_binaries ALL DEPENDS ${zero_thrust_outputs})

  add_executable(zero_thrust_on_device "${zero_thrust_cuda}")
  set_target_properties(zero_thrust_on_device PROPERTIES CUDA_STANDARD 20)
  target_include_directories(zero_thrust_on_device PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(zero_thrust_on_device PRIVATE zero::thrust zero::cuda)
endif()
zero_add_cuda_test(kernels_ptx.thrust "${ZERO_PYTHON}" "${zero_kernel_tests}/thrust_kernels.py"
  "${zero_kernel_folder}/thrust.sm_${architecture}.cubin")
zero_add_cuda_test(kernels_ptx.contraction.thrust "${ZERO_PYTHON}" "${zero_kernel_tests}/check.py"
  --same "${zero_kernel_folder}/thrust.fmad.ptx" "${zero_kernel_folder}/thrust.no_fmad.ptx")
zero_add_cuda_test(kernels_ptx.thrust_on_device $<TARGET_FILE:zero_thrust_on_device>)
if(TARGET zero_cuda)
  zero_set_test_properties(kernels_ptx.thrust_on_device LABELS gpu_compile gpu)
endif()
