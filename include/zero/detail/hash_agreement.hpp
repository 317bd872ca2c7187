// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <zero/config.hpp>
#include <zero/numeric/scalar_ops.hpp>

namespace zero::detail {

/// A hash as doubles whose sums over ranks show on every rank whether all ranks sent the same.
class hash_agreement {
 public:
  static constexpr std::size_t size = 6;

  /// Writes `size` values.
  ZERO_ANY_OPS template <class Ops = scalar_ops<double>>
  ZERO_HOST_DEVICE static void write(double* values, std::uint64_t hash) noexcept {
    for (std::size_t i = 0; i < parts; ++i) {
      values[2 * i] = part(hash, i);
      values[2 * i + 1] = Ops::mul(part(hash, i), part(hash, i));
    }
  }

  /// True on every rank exactly when all ranks sent the same parts.
  ///
  /// With sums A of x and B of x^2 over N ranks, Cauchy-Schwarz gives N B >= A^2 with equality
  /// only where all x are equal; so A = N x and B = N x^2 hold for my own x only then. Parts are
  /// 16 bits wide: all sums stay exact in double up to 2^21 ranks.
  ZERO_ANY_OPS template <class Ops = scalar_ops<double>>
  ZERO_HOST_DEVICE static bool holds(const double* sums, std::uint64_t hash, int ranks) noexcept {
    const double n = ranks;
    for (std::size_t i = 0; i < parts; ++i) {
      const double mine = part(hash, i);
      if (sums[2 * i] != Ops::mul(n, mine)) return false;
      if (sums[2 * i + 1] != Ops::mul(n, Ops::mul(mine, mine))) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t parts = 3;
  ZERO_HOST_DEVICE static double part(std::uint64_t hash, std::size_t i) noexcept {
    return static_cast<double>((hash >> (16 * i)) & 0xffffU);
  }
};

}  // namespace zero::detail
