// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace zero {

/// How the loss scale of fp16 moves. Powers of two keep the scaling itself exact.
struct loss_scale_options {
  double initial = 65536.0;
  double growth = 2.0;
  double backoff = 0.5;
  std::uint64_t window = 2000;  ///< finite steps in a row before the scale grows
  double minimum = 1.0;
  double maximum = 16777216.0;
};

namespace detail {

/// The dynamic loss scale: one state, advanced once per step by the common verdict of all ranks.
class loss_scale {
 public:
  explicit loss_scale(const loss_scale_options& options) noexcept
      : options_(options), value_(options.initial) {}

  double value() const noexcept { return value_; }
  /// Overflows that met the minimum: the model itself produces non-finite gradients.
  std::uint64_t overflows_at_minimum() const noexcept { return overflows_at_minimum_; }

  void advance(bool overflow) noexcept {
    if (overflow) {
      if (value_ <= options_.minimum) ++overflows_at_minimum_;
      value_ = std::max(value_ * options_.backoff, options_.minimum);
      finite_steps_ = 0;
      return;
    }
    if (++finite_steps_ < options_.window) return;
    finite_steps_ = 0;
    value_ = std::min(value_ * options_.growth, options_.maximum);
  }

 private:
  loss_scale_options options_;
  double value_;
  std::uint64_t finite_steps_ = 0;
  std::uint64_t overflows_at_minimum_ = 0;
};

}  // namespace detail
}  // namespace zero
