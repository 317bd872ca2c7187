// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <zero/backends/gloo.hpp>
#include <zero/rendezvous/file_store.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "conformance/backends.hpp"
#include "support/process_runner.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

// How the contract gets ranks of the Gloo backend: as threads of one process, each with a network
// device of its own, which is quick and can be watched by sanitizers, and as processes.

namespace zero::test {

struct gloo_by_default {
  static gloo_options options() { return {}; }
};

/// A shard of a few hundred elements takes many messages.
struct gloo_in_small_segments {
  static gloo_options options() { return {.segment_bytes = 64, .depth = 3}; }
};

struct gloo_unchecked {
  static gloo_options options() { return {.segment_bytes = 1024, .checked_order = false}; }
};

template <class Options>
gloo_options gloo_options_with(threads_options asked) {
  gloo_options options = Options::options();
  options.timeout = asked.timeout;
  return options;
}

/// Ranks as threads.
template <class Options, class Communicator = gloo_communicator>
struct gloo_threads {
  static std::string name() { return "gloo"; }
  static std::vector<int> sizes() { return sizes_up_to(8); }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    memory_store store;
    return try_run_threads(size, options, [&](threads_communicator& thread) {
      Communicator communicator(store, thread.rank(), size, gloo_options_with<Options>(options));
      try {
        return function(communicator);
      } catch (const std::exception& error) {
        // Peers learn why before the destructor tells them that this rank left.
        communicator.abort(error.what());
        throw;
      }
    });
  }
};

/// Ranks as processes.
struct gloo_processes {
  static std::string name() { return "gloo"; }
  static std::vector<int> sizes() { return {2, 3, 4, 8}; }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    const temporary_folder folder;
    return run_processes(
        size,
        [&](int rank) {
          // The communicator keeps it: parts meet there.
          auto store = any_store::make<file_store>(folder / "store", rank, size);
          return gloo_communicator(store, rank, size, gloo_options_with<gloo_by_default>(options));
        },
        function);
  }
};

}  // namespace zero::test
