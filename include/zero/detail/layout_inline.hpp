// SPDX-License-Identifier: Apache-2.0
#pragma once

// Member functions of model_layout. Included at the end of layout.hpp.

#include <bit>
#include <limits>
#include <string>
#include <utility>

#include <zero/layout.hpp>

namespace zero {

namespace detail {

/// Product of a shape. Throws: usage_error when it exceeds 2^63 - 1.
inline std::uint64_t shape_elements(const std::string& name,
                                    std::span<const std::uint64_t> shape) {
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) {
    if (extent != 0 && elements > limit / extent) {
      throw usage_error("zero::model_layout: tensor \"" + name +
                        "\" has more than 2^63 - 1 elements");
    }
    elements *= extent;
  }
  return elements;
}

}  // namespace detail

inline model_layout::model_layout(layout_options options)
    : alignment_elements_(options.alignment_bytes / 2),
      groups_{group_options{}, group_options{.lr_multiplier = {}, .weight_decay = 0.0}} {
  if (options.alignment_bytes < 2 || !std::has_single_bit(options.alignment_bytes)) {
    throw usage_error("zero::model_layout: alignment_bytes is " +
                      std::to_string(options.alignment_bytes) +
                      ", it must be a power of two of at least 2");
  }
}

inline group_id model_layout::add_group(const group_options& options) {
  groups_.push_back(options);
  return {static_cast<std::uint32_t>(groups_.size() - 1)};
}

inline unit_id model_layout::add_unit(std::string name) {
  if (name.empty()) throw usage_error("zero::model_layout: a unit needs a name");
  if (!unit_names_.insert(name).second) {
    throw usage_error("zero::model_layout: two units are called \"" + name + "\"");
  }
  units_.push_back({std::move(name), {}, {}, {}, {}});
  const unit_id id{static_cast<std::uint32_t>(units_.size() - 1)};
  uses_.push_back(id);
  return id;
}

inline void model_layout::use(unit_id unit) {
  require_known(unit);
  uses_.push_back(unit);
}

inline tensor_id model_layout::add_tensor(unit_id unit, std::string name,
                                          std::span<const std::uint64_t> shape, group_id group,
                                          tensor_options options) {
  require_known(unit);
  if (group.value >= groups_.size()) {
    throw usage_error("zero::model_layout: tensor \"" + name + "\" names group " +
                      std::to_string(group.value) + " of " + std::to_string(groups_.size()));
  }
  if (tensor_names_.contains(name)) {
    throw usage_error("zero::model_layout: two tensors are called \"" + name + "\"");
  }
  const tensor_id id{static_cast<std::uint32_t>(tensors_.size())};
  tensor_record tensor{std::move(name),
                       {shape.begin(), shape.end()},
                       0,
                       0,
                       unit,
                       group,
                       options.trainable,
                       id};
  tensor.elements = detail::shape_elements(tensor.name, shape);
  if (options.tied_to) {
    tie(tensor, *options.tied_to);
  } else {
    place(tensor);
  }
  tensor_names_.insert(tensor.name);
  units_[unit.value].tensors.push_back(id);
  tensors_.push_back(std::move(tensor));
  return id;
}

/// Gives the tensor the storage of `target`; the unit that stores it is used along with this one.
inline void model_layout::tie(tensor_record& tensor, tensor_id target) {
  if (target.value >= tensors_.size()) {
    throw usage_error("zero::model_layout: tensor \"" + tensor.name + "\" is tied to tensor " +
                      std::to_string(target.value) + ", which does not exist yet");
  }
  const tensor_record& owner = tensors_[tensors_[target.value].owner.value];
  if (owner.shape != tensor.shape || owner.trainable != tensor.trainable) {
    throw usage_error("zero::model_layout: tensor \"" + tensor.name + "\" is tied to \"" +
                      owner.name + "\", which has another shape or is " +
                      (owner.trainable ? "trainable" : "frozen"));
  }
  tensor.owner = owner.owner;
  if (owner.unit == tensor.unit) return;
  std::vector<unit_id>& tied = units_[tensor.unit.value].tied_units;
  for (const unit_id known : tied) {
    if (known == owner.unit) return;
  }
  tied.push_back(owner.unit);
}

/// Appends the tensor to its unit's flat range at the next aligned position.
inline void model_layout::place(tensor_record& tensor) {
  unit_record& unit = units_[tensor.unit.value];
  flat_range& range = tensor.trainable ? unit.trainable : unit.frozen;
  tensor.offset = round_up(range.flat, alignment_elements_);
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (tensor.offset > limit || tensor.elements > limit - tensor.offset) {
    throw usage_error("zero::model_layout: unit \"" + unit.name +
                      "\" has more than 2^63 - 1 elements");
  }
  if (tensor.elements != 0) range.flat = tensor.offset + tensor.elements;
  range.real += tensor.elements;
}

inline const group_options& model_layout::group(group_id group) const {
  if (group.value >= groups_.size()) {
    throw usage_error("zero::model_layout: group " + std::to_string(group.value) + " of " +
                      std::to_string(groups_.size()) + " does not exist");
  }
  return groups_[group.value];
}

inline tensor_info model_layout::info(tensor_id tensor) const {
  const tensor_record& record = at(tensor);
  return {tensor,       record.name,  record.shape,     record.elements,
          record.unit,  record.group, record.trainable, detail::hasher{}.add(record.name).value()};
}

inline std::uint64_t model_layout::real_elements_in(unit_id unit, bool trainable,
                                                    interval part) const {
  std::uint64_t elements = 0;
  for (const tensor_id id : at(unit).tensors) {
    const tensor_record& tensor = at(id);
    if (tensor.trainable != trainable || tensor.owner != id) continue;
    elements += intersect({tensor.offset, tensor.offset + tensor.elements}, part).size();
  }
  return elements;
}

inline std::vector<unit_id> model_layout::schedule() const {
  std::vector<unit_id> order;
  for (const unit_id use : uses_) {
    const std::vector<unit_id>& tied = units_[use.value].tied_units;
    order.insert(order.end(), tied.begin(), tied.end());
    order.push_back(use);
  }
  return order;
}

inline const model_layout::unit_record& model_layout::at(unit_id unit) const {
  require_known(unit);
  return units_[unit.value];
}

inline const model_layout::tensor_record& model_layout::at(tensor_id tensor) const {
  if (tensor.value >= tensors_.size()) {
    throw usage_error("zero::model_layout: tensor " + std::to_string(tensor.value) + " of " +
                      std::to_string(tensors_.size()) + " does not exist");
  }
  return tensors_[tensor.value];
}

inline void model_layout::require_known(unit_id unit) const {
  if (unit.value >= units_.size()) {
    throw usage_error("zero::model_layout: unit " + std::to_string(unit.value) + " of " +
                      std::to_string(units_.size()) + " does not exist");
  }
}

inline std::uint64_t model_layout::total(bool trainable) const noexcept {
  std::uint64_t elements = 0;
  for (const unit_record& unit : units_) {
    elements += trainable ? unit.trainable.real : unit.frozen.real;
  }
  return elements;
}

}  // namespace zero
