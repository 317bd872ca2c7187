// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string_view>

namespace zero {

/// Which of the three model states are partitioned over the ranks (ZeRO, section 5).
///
/// A stage is a set of compile-time flags; whatever a stage does not need is not compiled. The
/// flags are monotone: gradients are partitioned only where optimizer states are, parameters only
/// where gradients are.
template <class S>
concept Stage = requires {
  { S::name } -> std::convertible_to<std::string_view>;
  { S::partitions_optimizer_state } -> std::convertible_to<bool>;
  { S::partitions_gradients } -> std::convertible_to<bool>;
  { S::partitions_parameters } -> std::convertible_to<bool>;
  { S::reshards_after_forward } -> std::convertible_to<bool>;
  requires S::partitions_optimizer_state || !S::partitions_gradients;
  requires S::partitions_gradients || !S::partitions_parameters;
  requires S::partitions_parameters || !S::reshards_after_forward;
};

/// Data parallelism: all three states are replicated. 16 Psi bytes, 2 Psi elements moved.
struct stage0 {
  static constexpr std::string_view name = "0";
  static constexpr bool partitions_optimizer_state = false;
  static constexpr bool partitions_gradients = false;
  static constexpr bool partitions_parameters = false;
  static constexpr bool reshards_after_forward = false;
};

/// Optimizer states are partitioned (Pos). 4 Psi + 12 Psi / N bytes, 2 Psi elements moved.
struct stage1 {
  static constexpr std::string_view name = "1";
  static constexpr bool partitions_optimizer_state = true;
  static constexpr bool partitions_gradients = false;
  static constexpr bool partitions_parameters = false;
  static constexpr bool reshards_after_forward = false;
};

/// Optimizer states and gradients (Pos+g). 2 Psi + 14 Psi / N bytes, 2 Psi elements moved.
struct stage2 {
  static constexpr std::string_view name = "2";
  static constexpr bool partitions_optimizer_state = true;
  static constexpr bool partitions_gradients = true;
  static constexpr bool partitions_parameters = false;
  static constexpr bool reshards_after_forward = false;
};

/// All three states (Pos+g+p). 16 Psi / N bytes, 3 Psi elements moved.
struct stage3 {
  static constexpr std::string_view name = "3";
  static constexpr bool partitions_optimizer_state = true;
  static constexpr bool partitions_gradients = true;
  static constexpr bool partitions_parameters = true;
  static constexpr bool reshards_after_forward = true;
};

/// Stage 3 that keeps the parameters gathered from forward to backward: 2 Psi elements moved, and
/// the gathered parameters (2 Psi bytes in 16 bits) live through the backward pass.
struct stage3_keep_gathered {
  static constexpr std::string_view name = "3_keep_gathered";
  static constexpr bool partitions_optimizer_state = true;
  static constexpr bool partitions_gradients = true;
  static constexpr bool partitions_parameters = true;
  static constexpr bool reshards_after_forward = false;
};

static_assert(Stage<stage0>);
static_assert(Stage<stage1>);
static_assert(Stage<stage2>);
static_assert(Stage<stage3>);
static_assert(Stage<stage3_keep_gathered>);

}  // namespace zero
