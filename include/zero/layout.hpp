// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <zero/detail/hash.hpp>
#include <zero/error.hpp>
#include <zero/partition.hpp>

namespace zero {

/// Handles into a layout. They are plain indices in the order of creation.
struct unit_id {
  std::uint32_t value = 0;
  friend constexpr bool operator==(unit_id, unit_id) = default;
};
struct tensor_id {
  std::uint32_t value = 0;
  friend constexpr bool operator==(tensor_id, tensor_id) = default;
};
struct group_id {
  std::uint32_t value = 0;
  friend constexpr bool operator==(group_id, group_id) = default;
};

/// What a group of tensors changes about the optimizer; unset fields inherit the optimizer's.
struct group_options {
  std::optional<double> lr_multiplier;
  std::optional<double> weight_decay;
};

/// The two groups that every layout has: everything inherited, and no weight decay.
inline constexpr group_id decay{0};
inline constexpr group_id no_decay{1};

/// Traits of a tensor beyond its name, shape and group.
struct tensor_options {
  bool trainable = true;               ///< false: no gradient, no optimizer state
  std::optional<tensor_id> tied_to{};  ///< shares that tensor's storage
};
inline constexpr tensor_options frozen{.trainable = false};

struct layout_options {
  /// Each tensor starts at a multiple of this inside its unit. A power of two of at least 2.
  /// Units: bytes of a 16-bit element type; wider types are aligned to more.
  std::uint64_t alignment_bytes = 64;
};

/// What callbacks are told about a tensor.
struct tensor_info {
  tensor_id id;
  std::string_view name;
  std::span<const std::uint64_t> shape;
  std::uint64_t elements = 0;
  unit_id unit;
  group_id group;
  bool trainable = true;
  std::uint64_t key = 0;  ///< hash of the name: the same for every N, stage and unit size
};

/// The model as units of tensors, and the order in which one forward traversal uses the units.
///
/// A unit holds the tensors that are gathered and reduced together. `add_unit` appends the unit's
/// first use to the schedule, `use` a further one; backward is the reverse. Trainable and frozen
/// tensors of a unit lie in separate flat ranges; each tensor starts at an aligned position, and
/// the gaps count as padding. A tensor tied to one of another unit adds a use of that unit.
/// Pure bookkeeping: no storage, no ranks. Units: elements, unless a name says bytes.
class model_layout {
 public:
  explicit model_layout(layout_options options = {});

  group_id add_group(const group_options& options);
  /// Throws: usage_error when the name is empty or taken.
  unit_id add_unit(std::string name);
  /// Appends a further use of `unit` to the forward schedule (a tied head, say).
  void use(unit_id unit);
  /// Throws: usage_error for a name that is taken, more than 2^63 elements, or a tie that does not
  /// fit (other shape, other trainability, an id of another layout).
  tensor_id add_tensor(unit_id unit, std::string name, std::span<const std::uint64_t> shape,
                       group_id group = decay, tensor_options options = {});
  tensor_id add_tensor(unit_id unit, std::string name, std::initializer_list<std::uint64_t> shape,
                       group_id group = decay, tensor_options options = {}) {
    return add_tensor(unit, std::move(name), std::span(shape.begin(), shape.size()), group,
                      options);
  }

  std::uint64_t alignment_bytes() const noexcept { return alignment_elements_ * 2; }
  std::uint64_t alignment_elements() const noexcept { return alignment_elements_; }

  std::uint32_t unit_count() const noexcept { return static_cast<std::uint32_t>(units_.size()); }
  std::uint32_t tensor_count() const noexcept {
    return static_cast<std::uint32_t>(tensors_.size());
  }
  std::uint32_t group_count() const noexcept { return static_cast<std::uint32_t>(groups_.size()); }

  std::string_view unit_name(unit_id unit) const { return at(unit).name; }
  /// The unit's tensors in order of creation, tied ones included.
  std::span<const tensor_id> tensors(unit_id unit) const { return at(unit).tensors; }
  const group_options& group(group_id group) const;
  tensor_info info(tensor_id tensor) const;
  /// The tensor whose storage this one uses: itself unless it is tied.
  tensor_id owner(tensor_id tensor) const { return at(tensor).owner; }
  bool is_tied(tensor_id tensor) const { return at(tensor).owner.value != tensor.value; }
  /// Position of the tensor's first element in the flat range (trainable or frozen) of the unit
  /// that stores it. Pure arithmetic: base + offset replaces a table of pointers.
  std::uint64_t offset(tensor_id tensor) const { return at(at(tensor).owner).offset; }

  /// Elements of a flat range, alignment gaps between tensors included.
  std::uint64_t flat_elements(unit_id unit, bool trainable) const {
    return trainable ? at(unit).trainable.flat : at(unit).frozen.flat;
  }
  /// Elements of a unit's tensors alone; a tied tensor counts where it is stored.
  std::uint64_t real_elements(unit_id unit, bool trainable) const {
    return trainable ? at(unit).trainable.real : at(unit).frozen.real;
  }
  /// Psi_t and Psi_f: trainable and frozen elements of the model, without padding.
  std::uint64_t trainable_elements() const noexcept { return total(true); }
  std::uint64_t frozen_elements() const noexcept { return total(false); }
  /// Real elements of the unit's range that lie inside `part` of it.
  std::uint64_t real_elements_in(unit_id unit, bool trainable, interval part) const;

  /// The uses as they were declared, in forward order: what the user opens.
  std::span<const unit_id> uses() const noexcept { return uses_; }
  /// One forward traversal, unit by unit; uses that follow from tied tensors stand before the
  /// use that needs them.
  std::vector<unit_id> schedule() const;
  /// Units that must be open with `unit` because it has tensors tied to theirs.
  std::span<const unit_id> tied_units(unit_id unit) const { return at(unit).tied_units; }

 private:
  struct flat_range {
    std::uint64_t flat = 0;
    std::uint64_t real = 0;
  };
  struct unit_record {
    std::string name;
    std::vector<tensor_id> tensors;
    std::vector<unit_id> tied_units;
    flat_range trainable;
    flat_range frozen;
  };
  struct tensor_record {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::uint64_t elements = 0;
    std::uint64_t offset = 0;
    unit_id unit;
    group_id group;
    bool trainable = true;
    tensor_id owner;
  };

  const unit_record& at(unit_id unit) const;
  const tensor_record& at(tensor_id tensor) const;
  void require_known(unit_id unit) const;
  std::uint64_t total(bool trainable) const noexcept;
  void tie(tensor_record& tensor, tensor_id target);
  void place(tensor_record& tensor);

  std::uint64_t alignment_elements_ = 32;
  std::vector<group_options> groups_;
  std::vector<unit_record> units_;
  std::vector<tensor_record> tensors_;
  std::vector<unit_id> uses_;
  std::unordered_set<std::string> unit_names_;
  std::unordered_set<std::string> tensor_names_;
};

}  // namespace zero

#include <zero/detail/layout_inline.hpp>
