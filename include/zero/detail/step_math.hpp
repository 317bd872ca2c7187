// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include <zero/detail/hash.hpp>

namespace zero::detail {

/// A hash as doubles whose sums over ranks show on every rank whether all ranks sent the same.
class hash_agreement {
 public:
  static constexpr std::size_t size = 6;

  static void write(std::span<double, size> values, std::uint64_t hash) noexcept {
    for (std::size_t i = 0; i < parts; ++i) {
      values[2 * i] = part(hash, i);
      values[2 * i + 1] = part(hash, i) * part(hash, i);
    }
  }

  /// True on every rank exactly when all ranks sent the same parts.
  ///
  /// With sums A of x and B of x^2 over N ranks, Cauchy-Schwarz gives N B >= A^2 with equality
  /// only where all x are equal; so A = N x and B = N x^2 hold for my own x only then. Parts are
  /// 16 bits wide: all sums stay exact in double up to 2^21 ranks.
  static bool holds(std::span<const double, size> sums, std::uint64_t hash, int ranks) noexcept {
    const double n = ranks;
    for (std::size_t i = 0; i < parts; ++i) {
      const double mine = part(hash, i);
      if (sums[2 * i] != n * mine || sums[2 * i + 1] != n * (mine * mine)) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t parts = 3;
  static double part(std::uint64_t hash, std::size_t i) noexcept {
    return static_cast<double>((hash >> (16 * i)) & 0xffffU);
  }
};

/// What the ranks tell each other once per step, as doubles that are summed over ranks.
///
/// Norm, non-finite verdict and the check of the step's arguments travel in one all-reduce, so that
/// every rank, one with empty shards too, acts on the same numbers before any state changes.
class step_message {
 public:
  static constexpr std::size_t size = 2 + hash_agreement::size;

  /// `sum_of_squares` of this rank's shards, which counts where `is_counted` (one of the replicas);
  /// `arguments` a hash of what must be equal everywhere.
  static void write(std::span<double, size> values, double sum_of_squares, bool is_counted,
                    std::uint64_t arguments) noexcept {
    values[0] = is_counted ? sum_of_squares : 0.0;
    values[1] = std::isfinite(sum_of_squares) ? 0.0 : 1.0;
    hash_agreement::write(values.subspan<2, hash_agreement::size>(), arguments);
  }

  static double sum_of_squares(std::span<const double, size> values) noexcept { return values[0]; }
  static bool is_finite(std::span<const double, size> values) noexcept {
    return values[1] == 0.0 && std::isfinite(values[0]);
  }
  static bool arguments_agree(std::span<const double, size> values, std::uint64_t arguments,
                              int ranks) noexcept {
    return hash_agreement::holds(values.subspan<2, hash_agreement::size>(), arguments, ranks);
  }
};

/// The factors of one step: from the stored gradient to the one that the optimizer sees.
struct gradient_factors {
  double norm = 0;  ///< global L2 norm of the mean gradient, before clipping
  float scale = 1;  ///< mean x unscale x clip, rounded once

  /// `unscale` turns stored gradients into mean gradients: 1 / (divisor x loss scale), times N
  /// where the fold has divided already. `clip` <= 0 switches clipping off.
  static gradient_factors from(double sum_of_squares, double unscale, double clip) noexcept {
    const double norm = std::sqrt(sum_of_squares) * unscale;
    const double clip_factor = clip > 0 && norm > clip ? clip / norm : 1.0;
    return {norm, static_cast<float>(unscale * clip_factor)};
  }
};

}  // namespace zero::detail
