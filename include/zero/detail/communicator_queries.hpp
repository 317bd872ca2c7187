// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <zero/communicator.hpp>

namespace zero::detail {

// What the engine asks a communicator that not every one can answer: one without replicas is a
// single group.

template <HasTopology C>
int replicas_of(const C& communicator) {
  if constexpr (HasReplicas<C>) return communicator.replicas();
  return 1;
}

template <HasTopology C>
int replica_of(const C& communicator) {
  if constexpr (HasReplicas<C>) return communicator.replica();
  return 0;
}

/// Whether the partial sums of a group cross in their compute type.
template <HasTopology C>
bool crosses_unrounded(const C& communicator) {
  if constexpr (HasReplicas<C>) {
    return communicator.replicas() > 1 && !communicator.rounds_before_crossing();
  }
  return false;
}

/// The backend's name for messages, also behind a communicator that hides its type.
template <HasTopology C>
std::string_view backend_of(const C& communicator) {
  if constexpr (requires { communicator.inner_name(); }) {
    return communicator.inner_name();
  } else {
    return C::backend_name();
  }
}

template <HasTopology C>
void lend_scratch(C& communicator, std::span<std::byte> scratch) noexcept {
  if constexpr (HasReplicas<C>) communicator.lend_scratch(scratch);
}

}  // namespace zero::detail
