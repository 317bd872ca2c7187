// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <zero/kernels/cpu/dispatch.hpp>
#include <zero/kernels/cpu/lane_io.hpp>
#include <zero/kernels/stream.hpp>
#include <zero/range.hpp>

namespace zero::kernels {
namespace cpu {

template <class A, class B>
struct convert_kernel {
  const A* input;
  B* output;
  std::uint64_t count;

  template <class Ops>
  [[gnu::always_inline]] inline void run() const {
    const std::uint64_t in_full_lanes = count - count % Ops::lanes;
    convert_range<Ops>(0, in_full_lanes);
    convert_range<scalar_ops<typename Ops::value_type>>(in_full_lanes, count);
  }

 private:
  template <class Ops>
  [[gnu::always_inline]] inline void convert_range(std::uint64_t first, std::uint64_t last) const {
    for (std::uint64_t i = first; i < last; i += Ops::lanes) {
      lane_io<B, Ops>::store(output + i, lane_io<A, Ops>::load(input + i));
    }
  }
};

template <class G, class A>
struct accumulate_kernel {
  const G* input;
  A* sums;
  std::uint64_t count;

  template <class Ops>
  [[gnu::always_inline]] inline void run() const {
    const std::uint64_t in_full_lanes = count - count % Ops::lanes;
    accumulate_range<Ops>(0, in_full_lanes);
    accumulate_range<scalar_ops<typename Ops::value_type>>(in_full_lanes, count);
  }

 private:
  template <class Ops>
  [[gnu::always_inline]] inline void accumulate_range(std::uint64_t first,
                                                      std::uint64_t last) const {
    for (std::uint64_t i = first; i < last; i += Ops::lanes) {
      const typename Ops::lane_type sum = lane_io<A, Ops>::load(sums + i);
      const typename Ops::lane_type value = lane_io<G, Ops>::load(input + i);
      lane_io<A, Ops>::store(sums + i, Ops::add(sum, value));
    }
  }
};

/// Runs in double where one of the types is double, otherwise in fp32 on the given path.
template <class A, class B, class Kernel>
void run_in_common_type(isa path, const Kernel& kernel) {
  if constexpr (std::is_same_v<A, double> || std::is_same_v<B, double>) {
    kernel.template run<scalar_ops<double>>();
  } else {
    run(path, kernel);
  }
}

}  // namespace cpu

/// output = input, rounded once to nearest even; the ranges do not overlap.
///
/// Between double and a 16-bit type the value passes through float.
/// Throws: usage_error when this CPU cannot run `path`.
template <class A, class B>
void convert(host_space, const A* input, B* output, std::uint64_t count,
             cpu::isa path = cpu::instruction_set()) {
  if constexpr (std::is_same_v<A, B>) {
    if (count > 0)
      std::memcpy(output, input, static_cast<std::size_t>(count) * sizeof(A));
  } else {
    cpu::run_in_common_type<A, B>(path, cpu::convert_kernel<A, B>{input, output, count});
  }
}

/// sums += input, computed in fp32 (double where one of the types is), rounded once to A.
///
/// Throws: usage_error when this CPU cannot run `path`.
template <class G, class A>
void accumulate(host_space, const G* input, A* sums, std::uint64_t count,
                cpu::isa path = cpu::instruction_set()) {
  cpu::run_in_common_type<G, A>(path, cpu::accumulate_kernel<G, A>{input, sums, count});
}

/// Sets every element to +0.
template <class T>
void fill_zero(host_space, T* values, std::uint64_t count) {
  static_assert(std::is_trivially_copyable_v<T>,
                "zero::kernels::fill_zero: the bits of zero must be zero bits");
  if (count > 0)
    std::memset(values, 0, static_cast<std::size_t>(count) * sizeof(T));
}

// The same on a device, bit for bit. Compiled by nvcc with kernels/cuda/cast.cuh;
// kernels::instantiate brings them for the element types of a policy.

/// Stream: ordered, does not synchronise. Throws: cuda_error when the launch fails.
template <class A, class B>
void convert(cuda_space, const A* input, B* output, std::uint64_t count, cuda_stream stream);

/// Stream: ordered, does not synchronise. Throws: cuda_error when the launch fails.
template <class G, class A>
void accumulate(cuda_space, const G* input, A* sums, std::uint64_t count, cuda_stream stream);

/// Stream: ordered, does not synchronise. Throws: cuda_error when it cannot be enqueued.
template <class T>
void fill_zero(cuda_space, T* values, std::uint64_t count, cuda_stream stream);

}  // namespace zero::kernels
