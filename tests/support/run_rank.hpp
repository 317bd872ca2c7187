// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>

#include <zero/error.hpp>

namespace zero::test {

/// Calls `function(communicator)` and tells the peers when it throws.
template <class C, class Function>
auto run_rank(C& communicator, Function& function) {
  try {
    return function(communicator);
  } catch (const aborted_error&) {
    throw;  // they know
  } catch (const std::exception& e) {
    communicator.abort(e.what());
    throw;
  }
}

}  // namespace zero::test
