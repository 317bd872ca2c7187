// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zero/detail/update_flow.hpp>
#include <zero/range.hpp>

namespace zero::detail {

/// The update flow of an engine, by the space of its memory.
template <class State, class Space>
struct update_flow_in;
template <class State>
struct update_flow_in<State, host_space> {
  using type = update_flow<State>;
};

template <class State>
using update_flow_for = typename update_flow_in<State, typename State::space>::type;

}  // namespace zero::detail
