// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <zero/config.hpp>
#include <zero/kernels/cuda/ops.hpp>
#include <zero/kernels/cuda/pack.hpp>

namespace zero::kernels::cuda {

/// Consecutive elements that a thread moves from an array of A to one of B: 16 bytes of the
/// narrower type.
template <class A, class B>
inline constexpr std::size_t cast_elements = access_bytes /
                                             (sizeof(A) < sizeof(B) ? sizeof(A) : sizeof(B));

/// output = input, rounded once.
template <class A, class B>
struct convert_body {
  const A* input;
  B* output;
  std::uint64_t count;

  ZERO_HOST_DEVICE void run(std::uint64_t thread, std::uint64_t threads) const {
    for_each_pack<cast_elements<A, B>>(
        thread, threads, count, is_aligned(input) && is_aligned(output),
        [&](std::uint64_t first, auto length) {
          constexpr std::size_t elements = decltype(length)::value;
          const pack<A, elements> values = load_pack<elements>(input + first);
          pack<B, elements> converted;
          for (std::size_t i = 0; i < elements; ++i) {
            converted[i] = convert_element<B>(convert_element<common_type<A, B>>(values[i]));
          }
          store_pack<elements>(output + first, converted);
        });
  }
};

/// sums += input, rounded once to A.
template <class G, class A>
struct accumulate_body {
  const G* input;
  A* sums;
  std::uint64_t count;

  ZERO_HOST_DEVICE void run(std::uint64_t thread, std::uint64_t threads) const {
    for_each_pack<cast_elements<G, A>>(
        thread, threads, count, is_aligned(input) && is_aligned(sums),
        [&](std::uint64_t first, auto length) {
          using compute_type = common_type<G, A>;
          constexpr std::size_t elements = decltype(length)::value;
          const pack<G, elements> added = load_pack<elements>(input + first);
          pack<A, elements> values = load_pack<elements>(sums + first);
          for (std::size_t i = 0; i < elements; ++i) {
            values[i] = convert_element<A>(cuda_ops<compute_type>::add(
                convert_element<compute_type>(values[i]), convert_element<compute_type>(added[i])));
          }
          store_pack<elements>(sums + first, values);
        });
  }
};

}  // namespace zero::kernels::cuda
