// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <zero/kernels/cpu/instruction_set.hpp>
#include <zero/kernels/update.hpp>
#include <zero/optimizer.hpp>
#include <zero/precision.hpp>

namespace kernel_tests {

using zero::kernels::cpu::isa;

/// A fixed sequence: the same everywhere, without <random>.
class sequence {
 public:
  explicit sequence(std::uint64_t seed) : state_(seed * 2654435761U + 88172645463325252U) {}

  std::uint32_t bits() {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return static_cast<std::uint32_t>(state_ >> 32U);
  }
  /// A multiple of 2^-20 in [-1, 1), exact in every form of arithmetic.
  float unit() { return static_cast<float>(static_cast<std::int32_t>(bits()) >> 11) * 0x1p-20F; }

 private:
  std::uint64_t state_;
};

inline constexpr std::array<float, 12> special_values = {
    0.0F,
    -0.0F,
    std::numeric_limits<float>::denorm_min(),
    -1e-40F,
    std::numeric_limits<float>::min(),
    1e-30F,
    -1e25F,
    65504.0F,
    std::numeric_limits<float>::max(),
    std::numeric_limits<float>::infinity(),
    -std::numeric_limits<float>::infinity(),
    std::numeric_limits<float>::quiet_NaN(),
};

/// One value in eight is special.
inline float mixed_value(sequence& values) {
  const std::uint32_t choice = values.bits();
  if (choice % 8 == 0)
    return special_values[(choice >> 8U) % special_values.size()];
  return values.unit();
}

template <class T>
bool is_nan([[maybe_unused]] const T& value) {
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, zero::no_master>) {
    return false;
  } else {
    return std::isnan(static_cast<float>(value));
  }
}

/// Equal bits, or NaN both: which operand's payload survives is not fixed.
template <class T>
bool same(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0 || (is_nan(a) && is_nan(b));
}

/// Elements at an offset from an allocation's start, with a guard behind them.
template <class T>
class buffer {
 public:
  buffer(std::uint64_t count, std::size_t offset)
      : values_(static_cast<std::size_t>(count) + offset + guard), offset_(offset) {
    std::memset(static_cast<void*>(values_.data()), 0x5A, values_.size() * sizeof(T));
  }

  T* data() { return values_.data() + offset_; }
  const T* data() const { return values_.data() + offset_; }
  T& operator[](std::size_t i) { return values_[offset_ + i]; }
  std::size_t size() const { return values_.size() - offset_ - guard; }

  /// All of it, for copies to a device and back: the elements begin at offset().
  std::vector<T>& storage() { return values_; }
  std::size_t offset() const { return offset_; }

  /// The first index at which both differ, guards included; npos where they do not.
  std::size_t difference(const buffer& other) const {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (!same(values_[i], other.values_[i]))
        return i;
    }
    return npos;
  }

  static constexpr std::size_t npos = ~std::size_t{0};

 private:
  static constexpr std::size_t guard = 32;
  std::vector<T> values_;
  std::size_t offset_;
};

/// All arrays of one update, filled from a seed.
template <class O, class P, class G>
struct model_states {
  static constexpr std::size_t moment_count = O::moments_per_element;

  buffer<typename P::parameter_type> parameters;
  buffer<zero::master_type<P>> masters;
  std::vector<buffer<typename P::moment_type>> moments;
  buffer<G> gradients;

  model_states(std::uint64_t count, std::size_t offset, std::uint64_t seed, bool with_specials)
      : parameters(count, offset),
        masters(count, offset + 1),
        moments(moment_count, buffer<typename P::moment_type>(count, offset + 3)),
        gradients(count, offset + 2) {
    sequence values(seed);
    const auto next = [&] { return with_specials ? mixed_value(values) : values.unit(); };
    for (std::size_t i = 0; i < count; ++i) {
      P::store(next(), parameters[i], masters[i]);
      gradients[i] = static_cast<G>(next());
      for (std::size_t k = 0; k < moment_count; ++k) {
        const float moment = next() * 0x1p-6F;
        moments[k][i] = static_cast<typename P::moment_type>(k == 1 ? std::fabs(moment) : moment);
      }
    }
  }

  /// The arrays from element `first` on.
  zero::kernels::update_operands<O, P, G> operands(std::uint64_t first, std::uint64_t count) {
    zero::kernels::update_operands<O, P, G> result;
    result.parameters = parameters.data() + first;
    if constexpr (zero::has_master<P>)
      result.masters = masters.data() + first;
    for (std::size_t k = 0; k < moment_count; ++k)
      result.moments[k] = moments[k].data() + first;
    result.gradients = gradients.data() + first;
    result.count = count;
    return result;
  }

  void step(std::uint64_t number, isa path) { step(number, path, {gradients.size()}); }

  /// One update, cut into calls of the given lengths.
  void step(std::uint64_t number, isa path, const std::vector<std::size_t>& lengths) {
    const auto scalars = O{}.prepare(number, {.lr = 0.01, .weight_decay = 0.1});
    std::size_t first = 0;
    for (const std::size_t length : lengths) {
      zero::kernels::update(zero::host_space{}, operands(first, length), scalars, 0.75F, path);
      first += length;
    }
  }

  /// Empty where all arrays are equal.
  std::string difference(const model_states& other) const {
    const auto describe = [](const char* name, std::size_t i) {
      return i == buffer<G>::npos ? std::string() : name + (" at " + std::to_string(i)) + "; ";
    };
    std::string text = describe("parameters", parameters.difference(other.parameters)) +
                       describe("masters", masters.difference(other.masters)) +
                       describe("gradients", gradients.difference(other.gradients));
    for (std::size_t k = 0; k < moment_count; ++k) {
      text += describe("moments", moments[k].difference(other.moments[k]));
    }
    return text;
  }
};

template <class O, class P, class Function>
void for_each_gradient_type(Function function) {
  using gradient = typename P::gradient_type;
  using accumulation = typename P::accumulation_type;
  function.template operator()<O, P, gradient>();
  if constexpr (!std::is_same_v<gradient, accumulation>) {
    function.template operator()<O, P, accumulation>();
  }
}

template <class O, class Function>
void for_each_precision(Function function) {
  for_each_gradient_type<O, zero::fp32>(function);
  for_each_gradient_type<O, zero::bf16_mixed>(function);
  for_each_gradient_type<O, zero::fp16_mixed>(function);
  for_each_gradient_type<O, zero::bf16_mixed_fp32_gradients>(function);
  for_each_gradient_type<O, zero::bf16_remainder>(function);
}

/// Calls function.operator()<O, P, G>() for all optimizers, precisions and gradient types.
template <class Function>
void for_each_combination(Function function) {
  for_each_precision<zero::adamw>(function);
  for_each_precision<zero::adam>(function);
  for_each_precision<zero::sgd>(function);
  for_each_precision<zero::lion>(function);
}

/// The vector paths of this CPU.
inline std::vector<isa> vector_paths() {
  std::vector<isa> paths;
  for (const isa path : {isa::avx2, isa::avx512}) {
    if (zero::kernels::cpu::is_supported(path))
      paths.push_back(path);
  }
  return paths;
}

}  // namespace kernel_tests
