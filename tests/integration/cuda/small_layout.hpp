// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <zero/layout.hpp>

namespace zero::test {

/// A tied head, a frozen tensor, sizes that no N divides; the block's weight has 61 rows.
inline model_layout small_layout(std::uint64_t weight_columns) {
  model_layout layout({.alignment_bytes = 256});
  const unit_id embedding = layout.add_unit("embedding");
  const tensor_id table = layout.add_tensor(embedding, "table", {37, 5}, no_decay);
  const unit_id block = layout.add_unit("block");
  layout.add_tensor(block, "block.weight", {61, weight_columns});
  layout.add_tensor(block, "block.fixed", {67}, decay, frozen);
  const unit_id head = layout.add_unit("head");
  layout.add_tensor(head, "head.table", {37, 5}, no_decay, {.tied_to = table});
  layout.add_tensor(head, "head.bias", {37}, no_decay);
  return layout;
}

}  // namespace zero::test
