// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_try.hpp>

namespace gpu_bench {

/// An event that keeps the time, unlike zero::unique_cuda_event.
class time_stamp {
 public:
  time_stamp() { zero::detail::cuda_try(cudaEventCreate(&event_), "cudaEventCreate"); }
  time_stamp(const time_stamp&) = delete;
  time_stamp& operator=(const time_stamp&) = delete;
  ~time_stamp() { cudaEventDestroy(event_); }

  void record(zero::cuda_queue q) {
    zero::detail::cuda_try(cudaEventRecord(event_, q.stream()), "cudaEventRecord");
  }
  /// Waits for both.
  double seconds_since(const time_stamp& earlier) const {
    float milliseconds = 0;
    zero::detail::cuda_try(cudaEventSynchronize(event_), "cudaEventSynchronize");
    zero::detail::cuda_try(cudaEventElapsedTime(&milliseconds, earlier.event_, event_),
                           "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct compared_seconds {
  double kernel = 0;
  double copy = 0;
};

inline constexpr std::size_t samples = 9;

inline double median(std::array<double, samples> values) {
  std::sort(values.begin(), values.end());
  return values[samples / 2];
}

/// Runs a kernel and its yardstick in turn, so that both see the same clocks, each `repeats` times
/// per sample; seconds are those of one run. Each enqueues its work in the queue.
template <class Kernel, class Copy>
compared_seconds compare(zero::cuda_queue q, int repeats, Kernel kernel, Copy copy) {
  const auto run = [&] {
    for (int i = 0; i < repeats; ++i) kernel();
  };
  const auto run_yardstick = [&] {
    for (int i = 0; i < repeats; ++i) copy();
  };
  run();
  run_yardstick();
  // Recorded without waiting in between: the device never idles.
  std::array<std::array<time_stamp, 3>, samples> stamps;
  for (auto& [before, between, after] : stamps) {
    before.record(q);
    run();
    between.record(q);
    run_yardstick();
    after.record(q);
  }
  std::array<double, samples> kernel_seconds;
  std::array<double, samples> copy_seconds;
  for (std::size_t i = 0; i < samples; ++i) {
    kernel_seconds[i] = stamps[i][1].seconds_since(stamps[i][0]) / repeats;
    copy_seconds[i] = stamps[i][2].seconds_since(stamps[i][1]) / repeats;
  }
  return {median(kernel_seconds), median(copy_seconds)};
}

}  // namespace gpu_bench
