// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <zero/config.hpp>
#include <zero/error.hpp>
#include <zero/kernels/cuda/ops.hpp>
#include <zero/kernels/cuda/pack.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/numeric/element_traits.hpp>

namespace zero::kernels::cuda {

/// The rank_tree sum of arrays, element by element, as one thread of many does its part.
///
/// The tree is a sequence of complete subtrees of falling size, joined from the right. Each thread
/// adds eight inputs at a time in registers, as on the host, and keeps one partial sum for each bit
/// of the number of groups of eight. All threads take the same branches.
template <class T, class U>
class fold_body {
 public:
  using compute_type = typename element_traits<T>::compute_type;
  using ops = cuda_ops<compute_type>;
  /// One 16-byte access per input.
  static constexpr std::size_t elements = access_bytes / sizeof(T);

  fold_body(std::span<const T* const> inputs, U* output, std::uint64_t count, float scale)
      : output_(output),
        count_(count),
        input_count_(static_cast<std::uint32_t>(inputs.size())),
        scale_(static_cast<compute_type>(scale)) {
    if (inputs.empty()) throw usage_error("kernels::fold: no input");
    if (inputs.size() > max_device_fold_inputs) {
      throw usage_error("kernels::fold: " + std::to_string(inputs.size()) +
                        " inputs, a device folds at most " +
                        std::to_string(max_device_fold_inputs));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs_[i] = inputs[i];
  }

  ZERO_HOST_DEVICE void run(std::uint64_t thread, std::uint64_t threads) const {
    bool in_packs = is_aligned(output_);
    for (std::uint32_t i = 0; i < input_count_; ++i) in_packs = in_packs && is_aligned(inputs_[i]);
    for_each_pack<elements>(
        thread, threads, count_, in_packs,
        [&](std::uint64_t first, auto length) { fold<decltype(length)::value>(first); });
  }

 private:
  static constexpr std::uint32_t group = 8;
  /// One partial sum per bit of the number of complete groups.
  static constexpr std::size_t levels = 4;
  static_assert(max_device_fold_inputs / group < (1U << levels));

  template <std::size_t Length>
  using sums = pack<compute_type, Length>;

  /// The complete subtree over 2^Level inputs from `first_input` on.
  template <std::size_t Level, std::size_t Length>
  ZERO_HOST_DEVICE sums<Length> subtree(std::uint32_t first_input, std::uint64_t first) const {
    if constexpr (Level == 0) {
      const auto stored = load_pack<Length>(inputs_[first_input] + first);
      sums<Length> values;
      for (std::size_t i = 0; i < Length; ++i) {
        values[i] = convert_element<compute_type>(stored[i]);
      }
      return values;
    } else {
      const auto left = subtree<Level - 1, Length>(first_input, first);
      return add(left, subtree<Level - 1, Length>(first_input + (1U << (Level - 1)), first));
    }
  }

  template <std::size_t Length>
  static ZERO_HOST_DEVICE sums<Length> add(const sums<Length>& left, const sums<Length>& right) {
    sums<Length> result;
    for (std::size_t i = 0; i < Length; ++i) result[i] = ops::add(left[i], right[i]);
    return result;
  }

  /// Puts a finished group on the counter: two partial sums of equal size become one. `groups` were
  /// finished before, and their lowest set bits are the sums to join.
  template <std::size_t Level, std::size_t Length>
  static ZERO_HOST_DEVICE void count_group(fixed_array<sums<Length>, levels>& partial,
                                           const sums<Length>& sum, std::uint32_t groups) {
    if constexpr (Level < levels) {
      if ((groups >> Level) % 2 == 0) {
        partial[Level] = sum;
      } else {
        count_group<Level + 1>(partial, add(partial[Level], sum), groups);
      }
    }
  }

  /// result = left + result, where the result has terms already.
  template <std::size_t Length>
  static ZERO_HOST_DEVICE void join(sums<Length>& result, bool& has_terms,
                                    const sums<Length>& left) {
    result = has_terms ? add(left, result) : left;
    has_terms = true;
  }

  /// The inputs behind the last complete group, from the right: subtrees of 1, 2 and 4 inputs.
  template <std::size_t Level, std::size_t Length>
  ZERO_HOST_DEVICE void join_rest(sums<Length>& result, bool& has_terms,
                                  std::uint64_t first) const {
    if constexpr ((1U << Level) < group) {
      if ((input_count_ >> Level) % 2 == 1) {
        const std::uint32_t first_input = input_count_ >> (Level + 1) << (Level + 1);
        join(result, has_terms, subtree<Level, Length>(first_input, first));
      }
      join_rest<Level + 1>(result, has_terms, first);
    }
  }

  template <std::size_t Length>
  ZERO_HOST_DEVICE void fold(std::uint64_t first) const {
    fixed_array<sums<Length>, levels> partial = {};
    const std::uint32_t groups = input_count_ / group;
    for (std::uint32_t g = 0; g < groups; ++g) {
      count_group<0>(partial, subtree<3, Length>(g * group, first), g);
    }
    sums<Length> result = {};
    bool has_terms = false;
    join_rest<0>(result, has_terms, first);
    for (std::size_t level = 0; level < levels; ++level) {
      if ((groups >> level) % 2 == 1) join(result, has_terms, partial[level]);
    }
    pack<U, Length> rounded;
    for (std::size_t i = 0; i < Length; ++i) {
      rounded[i] = convert_element<U>(ops::mul(result[i], scale_));
    }
    store_pack<Length>(output_ + first, rounded);
  }

  const T* inputs_[max_device_fold_inputs] = {};
  U* output_;
  std::uint64_t count_;
  std::uint32_t input_count_;
  compute_type scale_;
};

}  // namespace zero::kernels::cuda
