// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/kernels/cuda/ops.hpp>
#include <zero/kernels/cuda/pack.hpp>
#include <zero/kernels/update.hpp>
#include <zero/precision.hpp>

#include "kernel_cases.hpp"

// Operands of device kernels: for their bodies on the host (tests/unit/kernels), and for the
// kernels on a GPU (tests/gpu/kernels).

namespace kernel_tests {

template <class T>
buffer<T> filled(std::uint64_t count, std::size_t offset, std::uint64_t seed) {
  buffer<T> result(count, offset);
  sequence values(seed);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = zero::kernels::cuda::convert_element<T>(mixed_value(values));
  }
  return result;
}

/// Values of very different sizes, so that every other order of additions rounds differently.
template <class T>
std::vector<T> uneven_values(std::uint64_t count, std::uint64_t seed) {
  sequence values(seed);
  std::vector<T> result(count);
  for (T& value : result) {
    const int exponent = static_cast<int>(values.bits() % 24) - 12;
    value = zero::kernels::cuda::convert_element<T>(std::ldexp(values.unit(), exponent));
  }
  return result;
}

/// The arrays of one update; `misaligned` is the one that does not start at 16 bytes, or none.
template <class O, class P, class G>
struct device_states {
  static constexpr std::size_t moment_count = O::moments_per_element;
  static constexpr std::size_t none = 99;

  buffer<typename P::parameter_type> parameters;
  buffer<zero::master_type<P>> masters;
  buffer<G> gradients;
  std::vector<buffer<typename P::moment_type>> moments;

  device_states(std::uint64_t count, std::size_t misaligned)
      : parameters(count, misaligned == 0 ? 1 : 0),
        masters(count, misaligned == 1 ? 1 : 0),
        gradients(count, misaligned == 2 ? 1 : 0) {
    for (std::size_t k = 0; k < moment_count; ++k) {
      moments.emplace_back(count, misaligned == 3 + k ? 1 : 0);
    }
    sequence values(count + 1);
    for (std::size_t i = 0; i < count; ++i) {
      P::store(mixed_value(values), parameters[i], masters[i]);
      gradients[i] = static_cast<G>(mixed_value(values));
      for (std::size_t k = 0; k < moment_count; ++k) {
        const float moment = mixed_value(values) * 0x1p-6F;
        moments[k][i] = static_cast<typename P::moment_type>(k == 1 ? std::fabs(moment) : moment);
      }
    }
  }

  zero::kernels::update_operands<O, P, G> operands() {
    zero::kernels::update_operands<O, P, G> result;
    result.parameters = parameters.data();
    if constexpr (zero::has_master<P>) result.masters = masters.data();
    for (std::size_t k = 0; k < moment_count; ++k) result.moments[k] = moments[k].data();
    result.gradients = gradients.data();
    result.count = gradients.size();
    return result;
  }

  std::string difference(const device_states& other) const {
    constexpr std::size_t npos = buffer<G>::npos;
    if (parameters.difference(other.parameters) != npos) return "parameters";
    if (masters.difference(other.masters) != npos) return "masters";
    if (gradients.difference(other.gradients) != npos) return "gradients";
    for (std::size_t k = 0; k < moment_count; ++k) {
      if (moments[k].difference(other.moments[k]) != npos) return "moment " + std::to_string(k);
    }
    return {};
  }
};

template <class T>
struct fold_inputs {
  std::vector<buffer<T>> arrays;
  std::vector<const T*> pointers;

  /// The array `misaligned` does not start at 16 bytes.
  fold_inputs(std::size_t ranks, std::uint64_t count, std::size_t misaligned) {
    sequence values(count + ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      arrays.emplace_back(count, r == misaligned ? 1 : 0);
      for (std::size_t i = 0; i < count; ++i) {
        arrays[r][i] = zero::kernels::cuda::convert_element<T>(mixed_value(values));
      }
    }
    for (const auto& array : arrays) pointers.push_back(array.data());
  }
};

}  // namespace kernel_tests
