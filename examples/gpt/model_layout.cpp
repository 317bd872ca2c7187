// SPDX-License-Identifier: Apache-2.0
#include "model_layout.hpp"

#include <algorithm>

namespace gpt {

described_model::described_model(const configuration& model, std::uint64_t seed)
    : model_(model), seed_(seed) {
  for (const unit_description& unit : describe_units(model)) {
    const zero::unit_id id = layout_.add_unit(unit.name);
    for (const tensor_description& tensor : unit.tensors) {
      layout_.add_tensor(id, unit.name + "." + tensor.name, tensor.shape,
                         tensor.decays ? zero::decay : zero::no_decay);
      beginnings_.push_back({tensor.start, tensor_key(unit.name, tensor.name)});
    }
  }
  layout_.use(zero::unit_id{0});  // the head multiplies by the embedding
}

void described_model::initial_values(const zero::tensor_info& tensor, std::uint64_t first,
                                     std::span<float> values) const {
  const beginning& how = beginnings_[tensor.id.value];
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    values[i] = initial_value(model_, how.start, how.key, first + i, seed_);
  }
}

unit_scratch::unit_scratch(const zero::model_layout& layout) {
  for (std::uint32_t u = 0; u < layout.unit_count(); ++u) {
    elements_.push_back(layout.real_elements(zero::unit_id{u}, true));
  }
  values_.resize(*std::max_element(elements_.begin(), elements_.end()));
  for (std::uint32_t u = 0; u < layout.unit_count(); ++u) {
    float* next = values_.data();
    std::vector<float*>& pointers = pointers_.emplace_back();
    for (const zero::tensor_id tensor : layout.tensors(zero::unit_id{u})) {
      pointers.push_back(next);
      next += layout.info(tensor).elements;
    }
  }
}

std::span<float* const> unit_scratch::zeroed(zero::unit_id unit) {
  std::fill_n(values_.begin(), elements_[unit.value], 0.0f);
  return of(unit);
}

}  // namespace gpt
