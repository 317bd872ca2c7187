// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <zero/kernels/norm.hpp>
#include <zero/range.hpp>

namespace zero::kernels {

/// Elements of one chunk of chunked_sum_of_squares.
inline constexpr std::uint64_t norm_chunk_elements = 1024;

namespace cpu {

/// Sums of chunks on their way up: sixteen interleaved partial sums on every level, as in a chunk.
class chunk_sums {
 public:
  void add(double value) noexcept { add(0, value); }

  double total() noexcept {
    for (std::size_t i = 0; i + 1 < levels; ++i) {
      if (levels_[i].count > 0) add(i + 1, levels_[i].take());
    }
    return levels_[levels - 1].take();
  }

 private:
  struct level {
    std::array<double, norm_partial_sums> partial = {};
    std::uint64_t count = 0;

    double take() noexcept {
      for (std::size_t half = norm_partial_sums / 2; half > 0; half /= 2) {
        for (std::size_t j = 0; j < half; ++j) partial[j] += partial[j + half];
      }
      const double sum = partial[0];
      *this = {};
      return sum;
    }
  };
  static constexpr std::size_t levels = 7;  // 1024^7 is more than 64 bits can count

  void add(std::size_t i, double value) noexcept {
    levels_[i].partial[static_cast<std::size_t>(levels_[i].count % norm_partial_sums)] += value;
    if (++levels_[i].count == norm_chunk_elements && i + 1 < levels) add(i + 1, levels_[i].take());
  }

  std::array<level, levels> levels_ = {};
};

}  // namespace cpu

/// The sum of squares in the order in which devices add, which can be cut into independent parts.
///
/// Chunks of 1,024 elements are summed as sum_of_squares does it; their sums are values of which
/// 1,024 each are added up by the same sixteen partial sums and tree, and so on, until one is left.
/// Up to 1,024 elements that is sum_of_squares itself.
/// Throws: usage_error when this CPU cannot run `path`.
template <class G>
double chunked_sum_of_squares(host_space, const G* values, std::uint64_t count,
                              cpu::isa path = cpu::instruction_set()) {
  cpu::chunk_sums sums;
  for (std::uint64_t first = 0; first < count; first += norm_chunk_elements) {
    const std::uint64_t left = count - first;
    const std::uint64_t length = left < norm_chunk_elements ? left : norm_chunk_elements;
    sums.add(sum_of_squares(host_space{}, values + first, length, path));
  }
  return sums.total();
}

/// Doubles of scratch memory that sum_of_squares needs on a device for so many elements.
constexpr std::uint64_t norm_scratch_elements(std::uint64_t count) noexcept {
  std::uint64_t elements = 0;
  while (count > norm_chunk_elements) {
    count = (count + norm_chunk_elements - 1) / norm_chunk_elements;
    elements += count;
  }
  return elements;
}

}  // namespace zero::kernels
