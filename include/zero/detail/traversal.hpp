// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <zero/engine_options.hpp>
#include <zero/error.hpp>
#include <zero/layout.hpp>

namespace zero {

namespace detail {

/// Follows the uses of units through one traversal of the schedule, and says what is next.
///
/// Knows nothing of memory or collectives. A unit may be opened again while it is open; only the
/// first opening of a use advances the position.
class traversal {
 public:
  explicit traversal(const model_layout& layout)
      : layout_(&layout), forward_(layout.schedule()), units_(layout.unit_count()) {
    for (const unit_id unit : forward_) ++units_[unit.value].uses;
  }

  void restart(direction way) noexcept {
    way_ = way;
    position_ = 0;
    for (unit_record& unit : units_) unit.seen = 0;
  }

  direction way() const noexcept { return way_; }
  bool has_started() const noexcept { return position_ != 0; }
  bool is_complete() const noexcept { return position_ == forward_.size(); }
  bool is_open(unit_id unit) const noexcept { return units_[unit.value].opens != 0; }
  /// All uses of this traversal have been opened.
  bool is_last_use(unit_id unit) const noexcept {
    return units_[unit.value].seen == units_[unit.value].uses;
  }
  std::optional<unit_id> next() const noexcept {
    if (is_complete()) return std::nullopt;
    return at(position_);
  }
  std::optional<unit_id> first_open() const noexcept {
    for (std::uint32_t u = 0; u < units_.size(); ++u) {
      if (units_[u].opens != 0) return unit_id{u};
    }
    return std::nullopt;
  }
  /// How many uses lie between the position and the next use of `unit`; none: it has no more.
  std::optional<std::size_t> distance_to(unit_id unit) const noexcept {
    for (std::size_t p = position_; p < forward_.size(); ++p) {
      if (at(p) == unit) return p - position_;
    }
    return std::nullopt;
  }

  /// Opens a use. Returns true when it advanced the position, false for a unit that is open
  /// already. Throws: usage_error when another unit is due.
  bool open(unit_id unit) {
    unit_record& record = units_[unit.value];
    const bool is_due = !is_complete() && at(position_) == unit;
    if (!is_due && record.opens == 0) throw usage_error(out_of_order(unit));
    if (is_due) {
      ++position_;
      ++record.seen;
    }
    ++record.opens;
    return is_due;
  }

  /// Closes one opening; returns true when the unit is not open any more.
  bool close(unit_id unit) {
    unit_record& record = units_[unit.value];
    if (record.opens == 0) {
      throw usage_error("zero::engine: unit \"" + name(unit) + "\" was closed and is not open");
    }
    return --record.opens == 0;
  }

  /// Forgets what is open (after a failure or at the end of a pass).
  void close_all() noexcept {
    for (unit_record& unit : units_) unit.opens = 0;
  }

 private:
  struct unit_record {
    std::uint32_t uses = 0;
    std::uint32_t seen = 0;
    std::uint32_t opens = 0;
  };

  unit_id at(std::size_t position) const noexcept {
    return way_ == direction::forward ? forward_[position]
                                      : forward_[forward_.size() - 1 - position];
  }
  std::string name(unit_id unit) const { return std::string(layout_->unit_name(unit)); }
  std::string out_of_order(unit_id unit) const {
    const std::string way = way_ == direction::forward ? "forward" : "backward";
    if (is_complete()) {
      return "zero::engine: unit \"" + name(unit) + "\" was opened after the last use of the " +
             way + " traversal (forward_again() starts another)";
    }
    return "zero::engine: unit \"" + name(unit) + "\" was opened in the " + way +
           " traversal where \"" + name(at(position_)) + "\" is due (use " +
           std::to_string(position_) + " of " + std::to_string(forward_.size()) +
           " of the schedule)";
  }

  const model_layout* layout_;
  std::vector<unit_id> forward_;
  std::vector<unit_record> units_;
  direction way_ = direction::forward;
  std::size_t position_ = 0;
};

}  // namespace detail
}  // namespace zero
