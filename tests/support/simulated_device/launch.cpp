// SPDX-License-Identifier: Apache-2.0
// What object files of nvcc call to register and launch their kernels. The device code in them is
// never looked at: a launch runs the host function that simulate_kernel() put in its place, or
// simulate_device_code() by its name.

#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/kernel_name.hpp"
#include "support/simulated_device/device_code.hpp"
#include "support/simulated_device/machine.hpp"

namespace {

using zero::test::simulated::machine;
using zero::test::simulated::stream;

struct kernel {
  std::string name = "a kernel without a body";
  std::size_t argument_bytes = 0;
  zero::test::detail::kernel_body body;
};

/// By the address of the host stub. Objects of nvcc register before main, so it is made on demand.
std::map<const void*, kernel>& kernels() {
  static std::map<const void*, kernel> all;
  return all;
}

std::mutex& kernels_mutex() {
  static std::mutex mutex;
  return mutex;
}

struct launch_configuration {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<launch_configuration> configurations;

/// Without a body where nobody said what it does.
kernel find_kernel(const void* stub) {
  kernel found;
  {
    const std::lock_guard lock(kernels_mutex());
    const auto entry = kernels().find(stub);
    if (entry != kernels().end()) found = entry->second;
  }
  if (found.body) return found;
  if (const auto* const code = zero::test::detail::find_device_code(found.name)) {
    found.argument_bytes = code->argument_bytes;
    found.body = code->body;
  }
  return found;
}

std::uint64_t volume(dim3 extent) {
  return std::uint64_t{extent.x} * extent.y * extent.z;
}

}  // namespace

void zero::test::detail::add_kernel(const void* stub, std::size_t argument_bytes,
                                    kernel_body body) {
  const std::lock_guard lock(kernels_mutex());
  kernel& entry = kernels()[stub];
  entry.argument_bytes = argument_bytes;
  entry.body = std::move(body);
}

extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
  static void* handle = nullptr;
  handle = binary;
  return &handle;
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void**) {}

char __cudaInitModule(void**) {
  return 1;
}

void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  const std::lock_guard lock(kernels_mutex());
  kernels()[stub].name = zero::test::demangle(name);
}

void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared_bytes,
                                     struct CUstream_st* on) {
  configurations.push_back({blocks, threads, shared_bytes, on});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, size_t* shared_bytes,
                                       void* on) {
  if (configurations.empty()) return cudaErrorInvalidValue;
  const launch_configuration top = configurations.back();
  configurations.pop_back();
  *blocks = top.blocks;
  *threads = top.threads;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(on) = top.stream;
  return cudaSuccess;
}

static cudaError_t enqueue_launch(const void* stub, dim3 blocks, dim3 threads, void** arguments,
                                  cudaStream_t on);

cudaError_t cudaLaunchKernel(const void* stub, dim3 blocks, dim3 threads, void** arguments, size_t,
                             cudaStream_t on) {
  const cudaError_t result = enqueue_launch(stub, blocks, threads, arguments, on);
  // The <<<>>> syntax drops the result; programs find it here.
  if (result != cudaSuccess) zero::test::simulated::last_error_code() = result;
  return result;
}

static cudaError_t enqueue_launch(const void* stub, dim3 blocks, dim3 threads, void** arguments,
                                  cudaStream_t on) {
  const kernel found = find_kernel(stub);
  auto& m = machine::instance();
  const auto lock = m.lock();
  const int fault = m.count_call("cudaLaunchKernel");
  if (fault != 0) return static_cast<cudaError_t>(fault);
  stream* const s = m.find_stream(on);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (!found.body) {
    m.find("cudaLaunchKernel: no host function stands for " + found.name +
           " (neither simulate_kernel nor simulate_device_code was called)");
    return cudaErrorInvalidDeviceFunction;
  }
  // Arguments are copied at the launch, as a driver does.
  const auto argument = std::make_shared<std::vector<std::max_align_t>>(
      found.argument_bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(argument->data(), arguments[0], found.argument_bytes);
  m.enqueue(*s, {.name = found.name,
                 .is_ready = {},
                 .run = [body = found.body, argument, count = volume(blocks) * volume(threads)] {
                   body(argument->data(), count);
                 }});
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* stub) {
  *handle = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 blocks, dim3 threads, void** arguments,
                               size_t shared_bytes, cudaStream_t on) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(handle), blocks, threads, arguments,
                          shared_bytes, on);
}

}  // extern "C"
