// SPDX-License-Identifier: Apache-2.0
// Prints what the first GPU of this machine is, as JSON; where there is none, the reason in one
// line and exit code 77.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>

#include <zero/cuda/device.hpp>
#include <zero/detail/cuda_try.hpp>

namespace {

int print_device() {
  const zero::cuda_devices devices = zero::cuda_device_count();
  if (devices.count == 0) {
    std::printf("%s\n", devices.reason.c_str());
    return 77;
  }
  cudaDeviceProp properties;
  int driver = 0;
  int runtime = 0;
  zero::detail::cuda_try(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  zero::detail::cuda_try(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  zero::detail::cuda_try(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::printf(
      "{\"device\": \"%s\", \"devices\": %d, \"compute_capability\": \"%d.%d\", "
      "\"multiprocessors\": %d, \"memory_bytes\": %zu, \"driver_version\": %d, "
      "\"runtime_version\": %d}\n",
      properties.name, devices.count, properties.major, properties.minor,
      properties.multiProcessorCount, properties.totalGlobalMem, driver, runtime);
  return 0;
}

}  // namespace

int main() {
  try {
    return print_device();
  } catch (const std::exception& problem) {
    std::printf("%s\n", problem.what());
    return 1;
  }
}
