// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <zero/optimizer.hpp>
#include <zero/precision.hpp>
#include <zero/stage.hpp>

namespace zero {

/// How gradients of several micro-batches become one.
enum class accumulation {
  none,          ///< one micro-batch per step; no memory beyond the paper's formula
  reduce_last,   ///< full local sums in accumulation_type, one reduce-scatter per step
  reduce_every,  ///< every micro-batch is reduced, the shard of the sum is kept (stages 1 to 3)
};

/// The flags of a Stage as values, for arithmetic that does not depend on its type.
struct stage_flags {
  bool partitions_optimizer_state = false;
  bool partitions_gradients = false;
  bool partitions_parameters = false;
  bool reshards_after_forward = false;
};

template <Stage S>
constexpr stage_flags flags_of() noexcept {
  return {S::partitions_optimizer_state, S::partitions_gradients, S::partitions_parameters,
          S::reshards_after_forward};
}

/// Bytes per element of each model state, from sizeof of the policy's types, never typed in.
struct element_bytes {
  std::uint64_t parameter = 0;
  std::uint64_t gradient = 0;
  std::uint64_t accumulation = 0;
  std::uint64_t master = 0;  ///< 0 where the parameter itself is the master
  std::uint64_t moment = 0;
  std::uint64_t moments = 0;  ///< how many moments the optimizer keeps

  /// K of the paper: bytes of optimizer state per element (12 for mixed-precision Adam).
  constexpr std::uint64_t optimizer() const noexcept { return master + moments * moment; }
};

template <Precision P, Optimizer O>
constexpr element_bytes bytes_of() noexcept {
  std::uint64_t master = 0;
  if constexpr (has_master<P>) master = sizeof(master_type<P>);
  return {sizeof(typename P::parameter_type),    sizeof(typename P::gradient_type),
          sizeof(typename P::accumulation_type), master,
          sizeof(typename P::moment_type),       O::moments_per_element};
}

/// The states that memory is held for.
enum class memory_state : std::uint8_t {
  parameters,
  gradients,
  optimizer,     ///< masters or remainders, and moments
  accumulation,  ///< sums over micro-batches; none without accumulation
  transient,     ///< gathered units, unreduced gradients, scratch
};

/// Bytes that one rank holds. Padding of parameters, gradients, optimizer states and accumulation
/// stands on its own line; transient buffers count whole.
struct held_bytes {
  std::uint64_t parameters = 0;
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
  std::uint64_t accumulation = 0;
  std::uint64_t padding = 0;
  std::uint64_t transient = 0;

  constexpr std::uint64_t model_states() const noexcept {
    return parameters + gradients + optimizer;
  }
  constexpr std::uint64_t total() const noexcept {
    return model_states() + accumulation + padding + transient;
  }
  constexpr void add(memory_state state, std::uint64_t real, std::uint64_t pad) noexcept {
    switch (state) {
      case memory_state::parameters:
        parameters += real;
        break;
      case memory_state::gradients:
        gradients += real;
        break;
      case memory_state::optimizer:
        optimizer += real;
        break;
      case memory_state::accumulation:
        accumulation += real;
        break;
      case memory_state::transient:
        transient += real + pad;
        return;
    }
    padding += pad;
  }
  friend constexpr bool operator==(const held_bytes&, const held_bytes&) = default;
};

/// Elements moved by collectives, in the paper's convention: a collective over a whole unit counts
/// its real elements once, on every rank. What goes over the wire is (N-1)/N of it plus padding.
struct moved_elements {
  std::uint64_t reduce_scatter = 0;
  std::uint64_t all_gather = 0;
  std::uint64_t crossing = 0;    ///< between the replicas of zero::hybrid: 2 Psi/S, not in total()
  std::uint64_t all_reduce = 0;  ///< the few doubles of a step: norm, verdict, argument check
  std::uint64_t broadcast = 0;
  std::uint64_t padding = 0;     ///< padding elements that travelled along
  std::uint64_t wire_bytes = 0;  ///< bytes this rank sent, padding included

  /// What the paper counts.
  constexpr std::uint64_t total() const noexcept { return reduce_scatter + all_gather; }
  constexpr moved_elements& operator+=(const moved_elements& other) noexcept {
    reduce_scatter += other.reduce_scatter;
    all_gather += other.all_gather;
    crossing += other.crossing;
    all_reduce += other.all_reduce;
    broadcast += other.broadcast;
    padding += other.padding;
    wire_bytes += other.wire_bytes;
    return *this;
  }
  friend constexpr bool operator==(const moved_elements&, const moved_elements&) = default;
};

}  // namespace zero
