// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <zero/kernels/cpu/dispatch.hpp>
#include <zero/kernels/cpu/lane_io.hpp>
#include <zero/kernels/stream.hpp>
#include <zero/range.hpp>

namespace zero::kernels {
namespace cpu {

/// Element i belongs to partial sum i mod 16, whatever the width of the machine's vectors.
inline constexpr std::size_t norm_partial_sums = 16;

template <class G>
struct norm_kernel {
  const G* values;
  std::uint64_t count;
  std::array<double, norm_partial_sums>& partial;

  template <class Ops>
  [[gnu::always_inline]] inline void run() const {
    constexpr std::size_t groups = norm_partial_sums / Ops::lanes;
    std::array<typename Ops::square_sums, groups> sums{};
    const std::uint64_t in_full_rows = count - count % norm_partial_sums;
    for (std::uint64_t i = 0; i < in_full_rows; i += norm_partial_sums) {
      for (std::size_t k = 0; k < groups; ++k) {
        Ops::add_squares(sums[k], lane_io<G, Ops>::load(values + i + k * Ops::lanes));
      }
    }
    for (std::size_t k = 0; k < groups; ++k) {
      Ops::store_sums(partial.data() + k * Ops::lanes, sums[k]);
    }
    using tail_ops = scalar_ops<typename Ops::value_type>;
    for (std::uint64_t i = in_full_rows; i < count; ++i) {
      tail_ops::add_squares(partial[static_cast<std::size_t>(i % norm_partial_sums)],
                            lane_io<G, tail_ops>::load(values + i));
    }
  }
};

}  // namespace cpu

/// The sum of squares, in double.
///
/// Sixteen interleaved partial sums are combined in a fixed tree, so the result is the same on
/// every instruction set; it does depend on where a range is split. No finite fp32 value's square
/// overflows in double, and an infinity or NaN stays non-finite through every sum: the result is
/// finite exactly when all values are. That is the library's test for non-finite gradients.
/// Throws: usage_error when this CPU cannot run `path`.
template <class G>
double sum_of_squares(host_space, const G* values, std::uint64_t count,
                      cpu::isa path = cpu::instruction_set()) {
  std::array<double, cpu::norm_partial_sums> partial{};
  const cpu::norm_kernel<G> kernel{values, count, partial};
  if constexpr (std::is_same_v<G, double>) {
    kernel.template run<scalar_ops<double>>();
  } else {
    cpu::run(path, kernel);
  }
  for (std::size_t half = cpu::norm_partial_sums / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j)
      partial[j] += partial[j + half];
  }
  return partial[0];
}

/// Adds the sum of squares of device memory to *total, in the order of kernels/chunked_norm.hpp.
///
/// `scratch` has norm_scratch_elements(count) places, and is free again for what follows in the
/// stream. Compiled by nvcc with kernels/cuda/norm.cuh; kernels::instantiate brings it for the
/// element types of a policy.
/// Stream: ordered, does not synchronise. Throws: cuda_error when a launch fails.
template <class G>
void sum_of_squares(cuda_space, const G* values, std::uint64_t count, double* scratch,
                    double* total, cuda_stream stream);

}  // namespace zero::kernels
