# SPDX-License-Identifier: Apache-2.0
# zero_cuda_kernels(<target> OPTIMIZERS <type>... PRECISIONS <type>... [INCLUDES <header>...])
#
# Adds to a target the one thing that nvcc has to compile: files that instantiate the device code of
# every optimizer with every precision policy. The rest of the target needs no nvcc. A name without
# :: is the library's (adamw, bf16_mixed); types of your own are written out (mine::lamb), and
# INCLUDES names the headers that define them. The project has enabled the language CUDA.

# CMake 3.25 has no name for C++20 in nvcc, although nvcc has had it since 12.0.
foreach(zero_option IN ITEMS STANDARD EXTENSION)
  if(NOT DEFINED CMAKE_CUDA20_${zero_option}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${zero_option}_COMPILE_OPTION "-std=c++20")
  endif()
endforeach()

# names: the types, each with its namespace.
function(zero_qualify_types result)
  set(names)
  foreach(type IN LISTS ARGN)
    if(NOT type MATCHES "::")
      set(type "zero::${type}")
    endif()
    list(APPEND names "${type}")
  endforeach()
  set(${result} "${names}" PARENT_SCOPE)
endfunction()

# Writes one file per precision, so that they compile in parallel, and returns their paths.
function(zero_write_cuda_kernels result folder)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "OPTIMIZERS;PRECISIONS;INCLUDES")
  zero_qualify_types(optimizers ${arg_OPTIMIZERS})
  zero_qualify_types(precisions ${arg_PRECISIONS})
  set(files)
  foreach(precision IN LISTS precisions)
    set(text "// Written by zero_cuda_kernels().\n#include <zero/kernels/cuda/instantiate.cuh>\n")
    foreach(header IN LISTS arg_INCLUDES)
      string(APPEND text "#include <${header}>\n")
    endforeach()
    string(APPEND text "\n")
    foreach(optimizer IN LISTS optimizers)
      string(APPEND text "template struct zero::kernels::instantiate<${optimizer}, ${precision}>;\n")
    endforeach()
    string(REGEX REPLACE "^zero::" "" file "${precision}")
    string(MAKE_C_IDENTIFIER "${file}" file)
    file(CONFIGURE OUTPUT "${folder}/${file}.cu" CONTENT "${text}" @ONLY)
    list(APPEND files "${folder}/${file}.cu")
  endforeach()
  set(${result} "${files}" PARENT_SCOPE)
endfunction()

function(zero_cuda_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OPTIMIZERS;PRECISIONS;INCLUDES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_OPTIMIZERS OR NOT arg_PRECISIONS)
    message(FATAL_ERROR "zero_cuda_kernels(${target}): expected OPTIMIZERS <type>... and "
      "PRECISIONS <type>..., got '${ARGN}'")
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "zero_cuda_kernels(${target}): the project has to call "
      "enable_language(CUDA) first")
  endif()
  zero_write_cuda_kernels(files "${CMAKE_CURRENT_BINARY_DIR}/${target}_cuda_kernels" ${ARGN})
  target_sources(${target} PRIVATE ${files})
  set_source_files_properties(${files} PROPERTIES LANGUAGE CUDA)
  # A target's own choice of a standard stands.
  get_target_property(standard ${target} CUDA_STANDARD)
  if(NOT standard)
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  endif()
  target_link_libraries(${target} PRIVATE zero::cuda)
endfunction()
