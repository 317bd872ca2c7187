// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <zero/config.hpp>
#include <zero/kernels/chunked_norm.hpp>
#include <zero/kernels/cuda/ops.hpp>
#include <zero/kernels/cuda/pack.hpp>

namespace zero::kernels::cuda {

/// One level of chunked_sum_of_squares: one sum for each chunk of its input.
///
/// The first level squares its elements, the levels above add up the sums of the level below
/// (`Squares` false). A chunk has rows of sixteen elements, one for each partial sum. `lanes`
/// neighbouring threads share a chunk: each reads 16 bytes of every row, adds them to partial sums
/// of its own, and then the lanes' partial sums are joined in the tree of sum_of_squares.
template <class T, bool Squares>
class chunk_sums_body {
 public:
  static_assert(Squares || std::is_same_v<T, double>);
  /// Elements of a row that one lane adds up.
  static constexpr std::size_t elements = sizeof(T) >= access_bytes ? 1 : access_bytes / sizeof(T);
  static constexpr std::size_t lanes = cpu::norm_partial_sums / elements;
  using lane_sums = fixed_array<double, elements>;

  /// `sums` has a place for each chunk. Where there is only one, its sum is the result and is added
  /// to `total` instead.
  chunk_sums_body(const T* values, std::uint64_t count, double* sums, double* total) noexcept
      : values_(values), count_(count), sums_(sums), total_(total) {}

  ZERO_HOST_DEVICE std::uint64_t chunks() const noexcept {
    return (count_ + norm_chunk_elements - 1) / norm_chunk_elements;
  }

  /// The form in which one thread plays all lanes of its chunks, one after the other.
  ZERO_HOST_DEVICE void run(std::uint64_t thread, std::uint64_t threads) const {
    for (std::uint64_t chunk = thread; chunk < chunks(); chunk += threads) {
      fixed_array<lane_sums, lanes> all;
      for (std::size_t lane = 0; lane < lanes; ++lane) all[lane] = add_up(chunk, lane);
      for (std::size_t half = lanes / 2; half > 0; half /= 2) {
        for (std::size_t lane = 0; lane < half; ++lane) join(all[lane], all[lane + half]);
      }
      write(chunk, all[0]);
    }
  }

  /// The partial sums of one lane.
  ZERO_HOST_DEVICE lane_sums add_up(std::uint64_t chunk, std::size_t lane) const {
    const std::uint64_t first = chunk * norm_chunk_elements;
    const std::uint64_t left = count_ - first;
    const std::uint64_t length = left < norm_chunk_elements ? left : norm_chunk_elements;
    const T* const own = values_ + first + lane * elements;
    lane_sums sums = {};
    const std::uint64_t rows = length / cpu::norm_partial_sums;
    add_rows(sums, own, rows);
    // What is left of the last row ends somewhere among the lanes.
    const T* const last = own + rows * cpu::norm_partial_sums;
    const std::uint64_t in_last_row = length % cpu::norm_partial_sums;
    for (std::size_t k = 0; k < elements; ++k) {
      if (lane * elements + k < in_last_row) add(sums[k], last[k]);
    }
    return sums;
  }

  /// sums += other, where the lanes of `other` follow by half of all lanes: one level of the tree.
  static ZERO_HOST_DEVICE void join(lane_sums& sums, const lane_sums& other) {
    for (std::size_t k = 0; k < elements; ++k) sums[k] = cuda_ops<double>::add(sums[k], other[k]);
  }

  /// The lower levels of the tree, among the partial sums of one lane, and the result's place.
  ZERO_HOST_DEVICE void write(std::uint64_t chunk, lane_sums sums) const {
    for (std::size_t half = elements / 2; half > 0; half /= 2) {
      for (std::size_t k = 0; k < half; ++k) {
        sums[k] = cuda_ops<double>::add(sums[k], sums[k + half]);
      }
    }
    if (count_ > norm_chunk_elements) {
      sums_[chunk] = sums[0];
    } else {
      *total_ = cuda_ops<double>::add(*total_, sums[0]);
    }
  }

 private:
  static constexpr std::size_t rows_in_flight = 8;

  static ZERO_HOST_DEVICE void add(double& sum, const T& value) {
    if constexpr (Squares) {
      using compute_type = common_type<T>;
      cuda_ops<compute_type>::add_squares(sum, convert_element<compute_type>(value));
    } else {
      sum = cuda_ops<double>::add(sum, value);
    }
  }
  static ZERO_HOST_DEVICE void add(lane_sums& sums, const pack<T, elements>& values) {
    for (std::size_t k = 0; k < elements; ++k) add(sums[k], values[k]);
  }

  ZERO_HOST_DEVICE void add_rows(lane_sums& sums, const T* own, std::uint64_t rows) const {
    std::uint64_t row = 0;
    if (is_aligned(values_)) {
      for (; row + rows_in_flight <= rows; row += rows_in_flight) {
        fixed_array<pack<T, elements>, rows_in_flight> values;
        for (std::size_t k = 0; k < rows_in_flight; ++k) {
          values[k] = load_pack<elements>(own + (row + k) * cpu::norm_partial_sums);
        }
        for (std::size_t k = 0; k < rows_in_flight; ++k) add(sums, values[k]);
      }
    }
    for (; row < rows; ++row) {
      for (std::size_t k = 0; k < elements; ++k) {
        add(sums[k], own[row * cpu::norm_partial_sums + k]);
      }
    }
  }

  const T* values_;
  std::uint64_t count_;
  double* sums_;
  double* total_;
};

}  // namespace zero::kernels::cuda
