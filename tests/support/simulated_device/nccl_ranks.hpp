// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <zero/backends/nccl.hpp>
#include <zero/cuda/stream.hpp>

#include "support/rank_runner.hpp"
#include "support/simulated_device/nccl_backend.hpp"
#include "support/simulated_device/simulated_device.hpp"

// What the tests of NCCL on simulated devices share.

namespace zero::test {

/// Catch's --rng-seed gives other seeds; with its default of 0 they are what is written here.
inline simulated_device_options machine_of(std::uint64_t seed, int devices) {
  return {.seed = seed + 1000 * std::uint64_t{Catch::rngSeed()},
          .devices = devices,
          .patience = std::chrono::seconds(20)};
}

inline nccl_options quick() {
  nccl_options options;
  options.timeout = std::chrono::seconds(30);
  options.setup_timeout = std::chrono::seconds(30);
  options.watch_interval = std::chrono::milliseconds(5);
  return options;
}

/// The watcher stays out of the way, so that the seed alone decides.
inline nccl_options unwatched() {
  nccl_options options = quick();
  options.watch_interval = std::chrono::hours(1);
  return options;
}

template <class Function>
std::vector<rank_error> run_ranks(int size, const nccl_options& options, Function function) {
  const auto result =
      nccl_backend::run_on(size, options, [&](auto& view) { function(view.inner()); });
  std::vector<rank_error> errors;
  for (int rank = 0; rank < size; ++rank) errors.push_back(describe(result.error(rank)));
  return errors;
}

/// Device memory that lives as long as the simulated device, for calls that nobody waits for.
inline range<double, full, cuda_space> device_ones(std::uint64_t count) {
  void* pointer = nullptr;
  zero::detail::cuda_try(cudaMalloc(&pointer, count * sizeof(double)), "cudaMalloc");
  auto* const values = static_cast<double*>(pointer);
  std::fill_n(values, count, 1.0);
  return {values, count};
}

/// `count` sums, each waited for by a queue, and that by the host. The buffer is gone at the end,
/// by an exception as well, so that address sanitizer sees who still uses it.
inline void all_reduce_often(nccl_communicator& comm, int count) {
  std::vector<double> ones(4, 1.0);
  const unique_cuda_stream stream;
  const range<double, full, cuda_space> values(ones.data(), ones.size());
  for (int i = 0; i < count; ++i) {
    comm.all_reduce(values, stream).wait(stream);
    comm.synchronize(stream);
  }
}

}  // namespace zero::test
