// SPDX-License-Identifier: Apache-2.0
// labels: gpu
// timeout: 120
// links: zero_nccl
#include <catch2/catch.hpp>

#include <string>

#include <zero/backends/nccl.hpp>
#include <zero/cuda/memory.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/rendezvous/memory_store.hpp>

// The CUDA runtime and NCCL as they are, and not the simulated device, so this is a program of its
// own. What it can show depends on the machine.

using namespace zero;

namespace {

/// The sum over one rank, as the device sees it.
double sum_alone() {
  memory_store store;
  nccl_communicator comm(store, 0, 1);
  const unique_cuda_stream stream;
  cuda_memory memory(comm.device());
  auto* const values =
      static_cast<double*>(memory.allocate(sizeof(double), cuda_memory::alignment_bytes));
  double value = 3;
  detail::cuda_try(
      cudaMemcpyAsync(values, &value, sizeof value, cudaMemcpyHostToDevice, stream.get()),
      "cudaMemcpyAsync");
  comm.all_reduce(range<double, full, cuda_space>(values, 1), stream).wait(stream);
  comm.synchronize(stream);
  detail::cuda_try(
      cudaMemcpyAsync(&value, values, sizeof value, cudaMemcpyDeviceToHost, stream.get()),
      "cudaMemcpyAsync");
  stream.synchronize();
  memory.deallocate(values, sizeof(double), cuda_memory::alignment_bytes);
  return value;
}

}  // namespace

TEST_CASE("a program with NCCL starts anywhere, and says in one line where there is no GPU") {
  const cuda_devices devices = cuda_device_count();
  if (devices.count > 0) {
    CHECK(sum_alone() == 3.0);
    return;
  }
  try {
    sum_alone();
    FAIL("a communicator without a GPU");
  } catch (const nccl_error& e) {
    const std::string text = e.what();
    INFO(text);
    CHECK(text == "zero::nccl_communicator: " + devices.reason);
    CHECK(text.find("no CUDA device: ") != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(e.code() == ncclUnhandledCudaError);
  }
}
