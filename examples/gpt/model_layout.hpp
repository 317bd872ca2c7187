// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <zero/layout.hpp>

#include "units.hpp"

namespace gpt {

/// The model as the library sees it: units of tensors in the order of their use, the embedding once
/// more for the tied head. A tensor's name is "<unit>.<tensor>".
class described_model {
 public:
  described_model(const configuration& model, std::uint64_t seed);

  const zero::model_layout& layout() const { return layout_; }

  /// Fills a run of a tensor that begins at element `first`; depends on names and seed alone.
  void initial_values(const zero::tensor_info& tensor, std::uint64_t first,
                      std::span<float> values) const;

 private:
  struct beginning {
    initialization start;
    std::uint64_t key;
  };

  configuration model_;
  std::uint64_t seed_;
  zero::model_layout layout_;
  std::vector<beginning> beginnings_;  ///< of each tensor
};

/// Memory for one unit's tensors in fp32, in which all units take turns.
class unit_scratch {
 public:
  explicit unit_scratch(const zero::model_layout& layout);

  /// One pointer for each tensor of the unit.
  std::span<float* const> of(zero::unit_id unit) const { return pointers_[unit.value]; }
  /// The unit's memory set to zero.
  std::span<float* const> zeroed(zero::unit_id unit);

 private:
  std::vector<float> values_;
  std::vector<std::uint64_t> elements_;  ///< of each unit
  std::vector<std::vector<float*>> pointers_;
};

}  // namespace gpt
