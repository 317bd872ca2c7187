// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/delaying.hpp>
#include <zero/backends/faulty.hpp>
#include <zero/backends/metered.hpp>
#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>

#include "support/any_ranks.hpp"
#include "support/rank_runner.hpp"

// How the contract gets ranks of each backend that lives in one process. A fixture says
//   name()                           the backend that its errors name
//   sizes()                          the numbers of ranks to test
//   run(size, options, function)     calls function(communicator) on every rank; a run_result
//   failures                         a failure_traits, where the backend fails in other ways

namespace zero::test {

inline std::vector<int> sizes_up_to(int largest) {
  std::vector<int> sizes(static_cast<std::size_t>(largest));
  std::iota(sizes.begin(), sizes.end(), 1);
  return sizes;
}

struct threads_backend {
  static std::string name() { return "threads"; }
  static std::vector<int> sizes() { return sizes_up_to(8); }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    return try_run_threads(size, options, function);
  }
};

/// One rank; a thread of its own catches what it throws.
struct self_backend {
  static std::string name() { return "self"; }
  static std::vector<int> sizes() { return {1}; }

  template <class Function>
  static auto run(int, threads_options options, Function function) {
    return try_run_threads(1, options, [&](threads_communicator&) {
      self_communicator self;
      return function(self);
    });
  }
};

/// A decorator, or several, around threads.
template <class Wrap>
struct wrapped_backend {
  static std::string name() { return "threads"; }
  static std::vector<int> sizes() { return {1, 2, 3, 5, 8}; }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    return try_run_threads(
        size, options, [&](threads_communicator& inner) { return Wrap::call(inner, function); });
  }
};

struct wrap_metered {
  template <class Function>
  static auto call(threads_communicator& inner, Function& function) {
    metered meter(inner);
    return function(meter);
  }
};
using metered_backend = wrapped_backend<wrap_metered>;

struct wrap_delaying {
  template <class Function>
  static auto call(threads_communicator& inner, Function& function) {
    delaying delay(inner, {.max_delay = std::chrono::microseconds(50), .seed = 7});
    return function(delay);
  }
};
struct delaying_backend : wrapped_backend<wrap_delaying> {
  static constexpr failure_traits failures{.survives_misuse = false};
};

struct wrap_any {
  template <class Function>
  static auto call(threads_communicator& inner, Function& function) {
    any_communicator any(inner);
    return function(any);
  }
};
using any_backend = wrapped_backend<wrap_any>;

/// The one communicator type of the engine tests, with everything switched off.
struct wrap_stack {
  template <class Function>
  static auto call(threads_communicator& inner, Function& function) {
    metered meter(inner);
    delaying delay(meter);
    faulty fault(delay);
    return function(fault);
  }
};
struct stack_backend : wrapped_backend<wrap_stack> {
  static constexpr failure_traits failures{.survives_misuse = false};  // as delaying
};

}  // namespace zero::test
