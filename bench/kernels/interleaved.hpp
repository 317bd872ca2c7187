// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

#include <benchmark/benchmark.h>

namespace kernel_bench {

/// CPU time of this thread: other load on the machine is not counted.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Runs a kernel and its yardstick in turn, so that both see the same machine, and reports
/// ns_per_element, limit_ns_per_element, their ratio (1 is the limit) and bytes per second.
template <class Kernel, class Limit>
void compare(benchmark::State& state, double elements, double bytes_per_element, Kernel kernel,
             Limit limit) {
  double kernel_seconds = 0;
  double limit_seconds = 0;
  kernel();
  limit();
  for (auto _ : state) {
    const double start = thread_seconds();
    kernel();
    const double middle = thread_seconds();
    limit();
    limit_seconds += thread_seconds() - middle;
    kernel_seconds += middle - start;
    state.SetIterationTime(middle - start);
  }
  const double total = elements * static_cast<double>(state.iterations());
  state.counters["ns_per_element"] = 1e9 * kernel_seconds / total;
  state.counters["limit_ns_per_element"] = 1e9 * limit_seconds / total;
  state.counters["ratio_to_limit"] = kernel_seconds / limit_seconds;
  state.counters["bytes_per_second"] =
      benchmark::Counter(bytes_per_element * total / kernel_seconds);
}

}  // namespace kernel_bench
