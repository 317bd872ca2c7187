// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include <zero/detail/hash.hpp>

namespace zero::detail {

/// What the ranks tell each other once per step, as doubles that are summed over ranks.
///
/// Norm, non-finite verdict and the check of the step's arguments travel in one all-reduce, so that
/// every rank, one with empty shards too, acts on the same numbers before any state changes.
class step_message {
 public:
  static constexpr std::size_t size = 8;

  /// `sum_of_squares` of this rank's shards; `arguments` a hash of what must be equal everywhere.
  static void write(std::span<double, size> values, double sum_of_squares,
                    std::uint64_t arguments) noexcept {
    values[0] = sum_of_squares;
    values[1] = std::isfinite(sum_of_squares) ? 0.0 : 1.0;
    for (std::size_t i = 0; i < hash_parts; ++i) {
      const double part = hash_part(arguments, i);
      values[2 + 2 * i] = part;
      values[3 + 2 * i] = part * part;
    }
  }

  static double sum_of_squares(std::span<const double, size> values) noexcept { return values[0]; }
  static bool is_finite(std::span<const double, size> values) noexcept {
    return values[1] == 0.0 && std::isfinite(values[0]);
  }

  /// True on every rank exactly when all ranks sent the same parts.
  ///
  /// With sums A of x and B of x^2 over N ranks, Cauchy-Schwarz gives N B >= A^2 with equality
  /// only where all x are equal; so A = N x and B = N x^2 hold for my own x only then. Parts are
  /// 16 bits wide: all sums stay exact in double up to 2^21 ranks.
  static bool arguments_agree(std::span<const double, size> values, std::uint64_t arguments,
                              int ranks) noexcept {
    const double n = ranks;
    for (std::size_t i = 0; i < hash_parts; ++i) {
      const double part = hash_part(arguments, i);
      if (values[2 + 2 * i] != n * part || values[3 + 2 * i] != n * (part * part)) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t hash_parts = 3;
  static double hash_part(std::uint64_t arguments, std::size_t i) noexcept {
    return static_cast<double>((arguments >> (16 * i)) & 0xffffU);
  }
};

/// The factors of one step: from the stored gradient to the one that the optimizer sees.
struct gradient_factors {
  double norm = 0;   ///< global L2 norm of the mean gradient, before clipping
  float scale = 1;   ///< mean x unscale x clip, rounded once

  /// `unscale` turns stored gradients into mean gradients: 1 / (divisor x loss scale), times N
  /// where the fold has divided already. `clip` <= 0 switches clipping off.
  static gradient_factors from(double sum_of_squares, double unscale, double clip) noexcept {
    const double norm = std::sqrt(sum_of_squares) * unscale;
    const double clip_factor = clip > 0 && norm > clip ? clip / norm : 1.0;
    return {norm, static_cast<float>(unscale * clip_factor)};
  }
};

}  // namespace zero::detail
