// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <zero/config.hpp>
#include <zero/error.hpp>
#include <zero/numeric/scalar_ops.hpp>

namespace zero {

/// What an element-wise update may depend on besides its element.
struct update_arguments {
  double lr = 1e-3;           ///< learning rate of the tensor's group
  double weight_decay = 0.0;  ///< decay of the tensor's group
};

namespace detail {

inline void require_step(std::uint64_t step, const update_arguments& arguments) {
  if (step == 0) throw usage_error("optimizer: steps count from 1, got step 0");
  if (!std::isfinite(arguments.lr)) {
    throw usage_error("optimizer: lr must be finite, got " + std::to_string(arguments.lr));
  }
  if (!std::isfinite(arguments.weight_decay)) {
    throw usage_error("optimizer: weight_decay must be finite, got " +
                      std::to_string(arguments.weight_decay));
  }
}

inline void require_decay_rate(const char* name, double value) {
  if (!(value >= 0.0 && value < 1.0)) {
    throw usage_error("optimizer: " + std::string(name) + " must lie in [0, 1), got " +
                      std::to_string(value));
  }
}

/// eps keeps 0 / 0 out of the padding, so it must not vanish when it is rounded to fp32.
inline void require_epsilon(double value) {
  if (!(value >= static_cast<double>(std::numeric_limits<float>::min())) || !std::isfinite(value)) {
    throw usage_error("optimizer: eps must be a positive normal fp32 number, got " +
                      std::to_string(value));
  }
}

/// 1 - beta^step, by squaring: products and one difference give the same bits everywhere, std::pow
/// may not (compilers evaluate it with another library than the one that runs).
ZERO_ANY_OPS template <class Ops>
ZERO_HOST_DEVICE double bias_correction(double beta, std::uint64_t step) {
  double power = 1.0;
  for (; step > 0; step /= 2) {
    if (step % 2 == 1) power = Ops::mul(power, beta);
    beta = Ops::mul(beta, beta);
  }
  return Ops::sub(1.0, power);
}

}  // namespace detail
}  // namespace zero
