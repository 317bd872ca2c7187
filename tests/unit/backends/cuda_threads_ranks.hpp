// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/backends/cuda_threads.hpp>
#include <zero/backends/threads.hpp>

#include "support/rank_runner.hpp"
#include "support/run_rank.hpp"
#include "support/simulated_device/kernels.hpp"
#include "support/simulated_device/ordering.hpp"
#include "support/simulated_device/simulated_device.hpp"

// Ranks of cuda_threads on a simulated device.

namespace zero::test {

inline simulated_device_options machine_of(std::uint64_t seed, int devices = 1) {
  return {.seed = seed, .devices = devices, .patience = std::chrono::seconds(20)};
}

/// Calls `function(communicator)` on every rank; how each ended.
template <class Function>
std::vector<rank_error> run_ranks(int size, const cuda_threads_options& options,
                                  Function function) {
  const cuda_threads_world world(size, options);
  return outcomes(size, {.timeout = std::chrono::hours(1)}, [&](threads_communicator& thread) {
    simulated_device::name_host_thread(thread.rank());
    cuda_threads_communicator comm(world, thread.rank());
    return run_rank(comm, function);
  });
}

/// Whether any rank saw a wrong result, or an error.
inline bool goes_wrong(int size, collective operation) {
  auto memory = ordered_memory::for_ranks(size);
  std::vector<std::string> texts(memory.size());
  // A rank that sees a wrong result does not throw: the others would have to be stopped first.
  const auto errors = run_ranks(size, {}, [&](cuda_threads_communicator& comm) {
    texts[static_cast<std::size_t>(comm.rank())] = ordered_rounds(comm, operation, memory).run();
  });
  for (const rank_error& error : errors) texts.push_back(error.text);
  return std::any_of(texts.begin(), texts.end(), [](const auto& text) { return !text.empty(); });
}

}  // namespace zero::test
