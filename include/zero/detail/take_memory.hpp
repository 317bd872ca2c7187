// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <zero/detail/communicator_queries.hpp>
#include <zero/detail/engine_state.hpp>
#include <zero/error.hpp>
#include <zero/memory.hpp>
#include <zero/plan.hpp>

namespace zero::detail {

/// Takes an engine's arena, from the user or a memory resource, and lays its buffers out in it.
/// Throws: usage_error for an arena of the user that is too small or not aligned.
template <class P, class O, class State>
void take_memory(State& state, typename State::queue q) {
  const engine_options& options = state.options;
  const std::uint64_t bytes = state.plan.arena_bytes;
  if (!options.arena.empty()) {
    if (options.arena.size() < bytes ||
        reinterpret_cast<std::uintptr_t>(options.arena.data()) % arena::alignment_bytes != 0) {
      throw usage_error("zero::engine: the arena has " + std::to_string(options.arena.size()) +
                        " bytes, " + std::to_string(bytes) + " aligned to " +
                        std::to_string(arena::alignment_bytes) + " are needed");
    }
    state.memory = arena(options.arena.first(static_cast<std::size_t>(bytes)));
  } else {
    state.memory =
        arena(options.memory != nullptr ? *options.memory : state.executor.memory(), bytes);
  }
  for (const planned_buffer& buffer : state.plan.buffers) {
    state.memory.take(buffer.state, buffer.real_bytes, buffer.padding_bytes);
  }
  state.books.held = state.memory.held();
  if (const std::uint64_t crossing = state.plan.crossing_shard; crossing != unit_plan::absent) {
    lend_scratch(
        state.wire.communicator(),
        {state.memory.data() + crossing, static_cast<std::size_t>(state.plan.control - crossing)});
  }
  // Padding and fresh moments are zero.
  state.executor.fill_zero(state.memory.data(), bytes, q);
  state.stores =
      store_builder<P, O::moments_per_element>(state.layout, state.plan, state.memory.data())
          .build();
}

}  // namespace zero::detail
