// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/backends/nccl.hpp>
#include <zero/backends/threads.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "support/any_ranks.hpp"
#include "support/run_rank.hpp"
#include "support/simulated_device/host_view.hpp"
#include "support/simulated_device/nccl_running_device.hpp"
#include "support/simulated_device/simulated_device.hpp"

namespace zero::test {

/// NCCL on a simulated device for each rank, as a fixture of tests/conformance. Ranks are threads.
/// Catch's --rng-seed gives other seeds.
template <bool IsChecked>
struct basic_nccl_backend {
  static std::string name() { return "nccl"; }
  static std::vector<int> sizes() { return {1, 2, 3, 4, 8}; }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    nccl_options settings;
    settings.timeout = options.timeout;
    settings.watch_interval = std::chrono::milliseconds(10);
    settings.checked_order = IsChecked;
    return run_with(size, settings, function);
  }

  template <class Function>
  static auto run_with(int size, const nccl_options& settings, Function function) {
    const simulated_device device({.seed = static_cast<std::uint64_t>(size) + Catch::rngSeed(),
                                   .devices = size,
                                   .patience = std::chrono::seconds(20)});
    const running_device running;
    return run_on(size, settings, function);
  }

  /// On a machine that exists already.
  template <class Function>
  static auto run_on(int size, const nccl_options& settings, Function function) {
    memory_store store;
    // Only the threads of the outer world are used, none of its collectives.
    return try_run_threads(
        size, {.timeout = std::chrono::hours(1)}, [&](threads_communicator& thread) {
          simulated_device::name_host_thread(thread.rank());
          const cuda_device_guard guard(thread.rank());
          host_view view(nccl_communicator(store, thread.rank(), size, settings));
          return run_rank(view, function);
        });
  }
};

using nccl_backend = basic_nccl_backend<true>;
using unchecked_nccl_backend = basic_nccl_backend<false>;

}  // namespace zero::test
