// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <zero/communicator.hpp>
#include <zero/error.hpp>
#include <zero/kernels/cpu/dispatch.hpp>
#include <zero/kernels/cpu/lane_io.hpp>
#include <zero/kernels/stream.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/range.hpp>

namespace zero::kernels {
namespace cpu {

/// The rank_tree sum of arrays, element by element.
///
/// left_subtree() is a power of two, so the tree over N inputs is a sequence of complete subtrees
/// of falling size, joined from the right: up to eight inputs are added in registers, and more are
/// added eight at a time like a binary counter, in which two partial sums of equal size become one.
template <class T, class U>
struct fold_kernel {
  using compute_type = typename element_traits<T>::compute_type;
  static constexpr std::size_t group = 8;
  static constexpr std::size_t block = 64;  // all levels together stay within 8 KiB of stack
  /// One partial sum per bit of the number of groups.
  static constexpr std::size_t max_levels = 29;

  std::span<const T* const> inputs;
  U* output;
  std::uint64_t count;
  compute_type scale;

  template <class Ops>
  [[gnu::always_inline]] inline void run() const {
    switch (inputs.size()) {
      case 1:
        return fold_few<Ops, 1>();
      case 2:
        return fold_few<Ops, 2>();
      case 3:
        return fold_few<Ops, 3>();
      case 4:
        return fold_few<Ops, 4>();
      case 5:
        return fold_few<Ops, 5>();
      case 6:
        return fold_few<Ops, 6>();
      case 7:
        return fold_few<Ops, 7>();
      case 8:
        return fold_few<Ops, 8>();
      default:
        return fold_many<Ops>();
    }
  }

 private:
  template <class Ops, std::size_t First, std::size_t Count>
  [[gnu::always_inline]] inline typename Ops::lane_type tree(const T* const* sources,
                                                             std::uint64_t i) const {
    if constexpr (Count == 1) {
      return lane_io<T, Ops>::load(sources[First] + i);
    } else {
      constexpr auto left = static_cast<std::size_t>(left_subtree(static_cast<int>(Count)));
      return Ops::add(tree<Ops, First, left>(sources, i),
                      tree<Ops, First + left, Count - left>(sources, i));
    }
  }

  template <class Ops>
  [[gnu::always_inline]] inline void finish(std::uint64_t i,
                                            const typename Ops::lane_type& sum) const {
    // x * 1 is x: no special case is needed, and none is worth a branch in a memory-bound loop.
    lane_io<U, Ops>::store(output + i, Ops::mul(sum, Ops::set(scale)));
  }

  template <class Ops, std::size_t Count>
  [[gnu::always_inline]] inline void fold_few() const {
    const std::uint64_t in_full_lanes = count - count % Ops::lanes;
    const T* const* const sources = inputs.data();
    for (std::uint64_t i = 0; i < in_full_lanes; i += Ops::lanes) {
      finish<Ops>(i, tree<Ops, 0, Count>(sources, i));
    }
    using tail_ops = scalar_ops<compute_type>;
    for (std::uint64_t i = in_full_lanes; i < count; ++i) {
      finish<tail_ops>(i, tree<tail_ops, 0, Count>(sources, i));
    }
  }

  template <class Ops>
  [[gnu::always_inline]] inline void fold_many() const {
    const std::uint64_t in_full_lanes = count - count % Ops::lanes;
    for (std::uint64_t first = 0; first < in_full_lanes; first += block) {
      const std::uint64_t left = in_full_lanes - first;
      fold_block<Ops>(first, left < block ? static_cast<std::size_t>(left) : block);
    }
    fold_block<scalar_ops<compute_type>>(in_full_lanes,
                                         static_cast<std::size_t>(count - in_full_lanes));
  }

  /// Elements [first, first + length), length at most `block` and a multiple of the lanes.
  template <class Ops>
  [[gnu::always_inline]] inline void fold_block(std::uint64_t first, std::size_t length) const {
    alignas(64) compute_type partial[max_levels][block];
    std::size_t level = 0;
    for (std::size_t done = 0; done < inputs.size(); done += group) {
      add_group<Ops>(partial[level], done, first, length);
      // Groups finished so far, this one included: each trailing zero bit is a pair to join. The
      // last group may be incomplete: it is joined with the rest below, as the smaller subtree.
      if (inputs.size() - done < group) {
        ++level;
        break;
      }
      std::size_t groups = done / group + 1;
      for (; groups % 2 == 0; groups /= 2)
        join<Ops>(partial, level--, length);
      ++level;
    }
    for (--level; level > 0; --level)
      join<Ops>(partial, level, length);
    for (std::size_t i = 0; i < length; i += Ops::lanes) {
      finish<Ops>(first + i, Ops::load(partial[0] + i));
    }
  }

  /// partial[level - 1] += partial[level]
  template <class Ops>
  [[gnu::always_inline]] static inline void join(compute_type (&partial)[max_levels][block],
                                                 std::size_t level, std::size_t length) {
    for (std::size_t i = 0; i < length; i += Ops::lanes) {
      compute_type* const target = partial[level - 1] + i;
      const auto left = Ops::load(static_cast<const compute_type*>(target));
      const auto right = Ops::load(static_cast<const compute_type*>(partial[level] + i));
      Ops::store(target, Ops::add(left, right));
    }
  }

  template <class Ops>
  [[gnu::always_inline]] inline void add_group(compute_type* target, std::size_t done,
                                               std::uint64_t first, std::size_t length) const {
    const T* const* const sources = inputs.data() + done;
    switch (inputs.size() - done) {
      case 1:
        return add_few<Ops, 1>(target, sources, first, length);
      case 2:
        return add_few<Ops, 2>(target, sources, first, length);
      case 3:
        return add_few<Ops, 3>(target, sources, first, length);
      case 4:
        return add_few<Ops, 4>(target, sources, first, length);
      case 5:
        return add_few<Ops, 5>(target, sources, first, length);
      case 6:
        return add_few<Ops, 6>(target, sources, first, length);
      case 7:
        return add_few<Ops, 7>(target, sources, first, length);
      default:
        return add_few<Ops, 8>(target, sources, first, length);
    }
  }

  template <class Ops, std::size_t Count>
  [[gnu::always_inline]] inline void add_few(compute_type* target, const T* const* sources,
                                             std::uint64_t first, std::size_t length) const {
    for (std::size_t i = 0; i < length; i += Ops::lanes) {
      Ops::store(target + i, tree<Ops, 0, Count>(sources, first + i));
    }
  }
};

}  // namespace cpu

/// output = scale * (the sum of the inputs in rank_tree order), rounded once to U.
///
/// N = 5: ((0+1)+(2+3))+4, per element, in the element type's compute type. U is T or that compute
/// type. The output may be exactly one of the inputs; no other overlap. Any count, any alignment.
/// Throws: usage_error when there is no input or when this CPU cannot run `path`.
template <class T, class U>
void fold(host_space, std::span<const T* const> inputs, U* output, std::uint64_t count, float scale,
          cpu::isa path = cpu::instruction_set()) {
  using compute_type = typename element_traits<T>::compute_type;
  static_assert(std::is_floating_point_v<compute_type>,
                "zero::kernels::fold: this element type is moved, not summed");
  static_assert(std::is_same_v<U, T> || std::is_same_v<U, compute_type>,
                "zero::kernels::fold: the output must be the input type or its compute type");
  if (inputs.empty())
    throw usage_error("kernels::fold: no input");
  if (inputs.size() > 0x7FFFFFFFU) {
    throw usage_error("kernels::fold: too many inputs: " + std::to_string(inputs.size()));
  }
  const cpu::fold_kernel<T, U> kernel{inputs, output, count, static_cast<compute_type>(scale)};
  if constexpr (std::is_same_v<compute_type, float>) {
    cpu::run(path, kernel);
  } else {
    kernel.template run<scalar_ops<compute_type>>();
  }
}

/// The most inputs that one launch folds on a device: their addresses travel as kernel arguments.
inline constexpr std::size_t max_device_fold_inputs = 64;

/// The same on a device, bit for bit; `inputs` itself is host memory, and free when this returns.
///
/// Compiled by nvcc with kernels/cuda/fold.cuh; kernels::instantiate brings it for the element
/// types of a policy. Stream: ordered, does not synchronise. Throws: usage_error for no or too many
/// inputs, cuda_error when the launch fails.
template <class T, class U>
void fold(cuda_space, std::span<const T* const> inputs, U* output, std::uint64_t count, float scale,
          cuda_stream stream);

}  // namespace zero::kernels
