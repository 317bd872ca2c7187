// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/float16.hpp>
#include <zero/numeric/scalar_ops.hpp>
#include <zero/precision.hpp>

namespace zero::kernels::cpu {

/// One element in another type. The 16-bit types know float only, so double passes through it.
template <class To, class From>
constexpr To convert_element(const From& value) {
  constexpr bool is_narrowing =
      std::is_same_v<From, double> && (std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>);
  if constexpr (std::is_constructible_v<To, const From&> && !is_narrowing) {
    return static_cast<To>(value);
  } else {
    return static_cast<To>(static_cast<float>(value));
  }
}

/// Elements of type T between memory and the lanes of Ops, converted to the compute type.
///
/// Where Ops knows T this is one instruction or a few; any other type goes through its own
/// conversion lane by lane, with the same result.
template <class T, class Ops>
struct lane_io {
  using value_type = typename Ops::value_type;
  using lane_type = typename Ops::lane_type;

  [[gnu::always_inline]] static inline lane_type load(const T* source) {
    if constexpr (requires { Ops::load(source); }) {
      return Ops::load(source);
    } else {
      alignas(64) value_type values[Ops::lanes];
      for (std::size_t i = 0; i < Ops::lanes; ++i) {
        values[i] = zero::detail::opaque(convert_element<value_type>(source[i]));
      }
      return Ops::load(static_cast<const value_type*>(values));
    }
  }

  [[gnu::always_inline]] static inline void store(T* target, const lane_type& lanes) {
    if constexpr (requires { Ops::store(target, lanes); }) {
      Ops::store(target, lanes);
    } else {
      alignas(64) value_type values[Ops::lanes];
      Ops::store(static_cast<value_type*>(values), lanes);
      for (std::size_t i = 0; i < Ops::lanes; ++i)
        target[i] = convert_element<T>(values[i]);
    }
  }
};

/// The compute-type values that a precision policy stores as parameters and masters.
///
/// This form works for every policy: it calls P::load and P::store for each lane. The built-in
/// policies have direct forms below.
template <class P, class Ops>
struct lane_storage {
  using value_type = typename Ops::value_type;
  using lane_type = typename Ops::lane_type;
  using parameter_type = typename P::parameter_type;

  [[gnu::always_inline]] static inline lane_type load(const parameter_type* parameters,
                                                      const master_type<P>* masters) {
    alignas(64) value_type values[Ops::lanes];
    for (std::size_t i = 0; i < Ops::lanes; ++i) {
      master_type<P> master{};
      if constexpr (has_master<P>)
        master = masters[i];
      values[i] = zero::detail::opaque(static_cast<value_type>(P::load(parameters[i], master)));
    }
    return Ops::load(static_cast<const value_type*>(values));
  }

  [[gnu::always_inline]] static inline void store(parameter_type* parameters,
                                                  master_type<P>* masters, const lane_type& lanes) {
    alignas(64) value_type values[Ops::lanes];
    Ops::store(static_cast<value_type*>(values), lanes);
    for (std::size_t i = 0; i < Ops::lanes; ++i) {
      master_type<P> master{};
      P::store(values[i], parameters[i], master);
      if constexpr (has_master<P>)
        masters[i] = master;
    }
  }
};

template <class Ops>
struct lane_storage<fp32, Ops> {
  using lane_type = typename Ops::lane_type;

  [[gnu::always_inline]] static inline lane_type load(const float* parameters, const no_master*) {
    return Ops::load(parameters);
  }
  [[gnu::always_inline]] static inline void store(float* parameters, no_master*,
                                                  const lane_type& lanes) {
    Ops::store(parameters, lanes);
  }
};

/// An fp32 master beside a parameter that is its nearest-even rounding.
template <class Parameter, class Ops>
struct mastered_storage {
  using lane_type = typename Ops::lane_type;

  [[gnu::always_inline]] static inline lane_type load(const Parameter*, const float* masters) {
    return Ops::load(masters);
  }
  [[gnu::always_inline]] static inline void store(Parameter* parameters, float* masters,
                                                  const lane_type& lanes) {
    Ops::store(masters, lanes);
    lane_io<Parameter, Ops>::store(parameters, lanes);
  }
};

template <class Ops>
struct lane_storage<bf16_mixed, Ops> : mastered_storage<bfloat16, Ops> {};
template <class Ops>
struct lane_storage<fp16_mixed, Ops> : mastered_storage<float16, Ops> {};
template <class Ops>
struct lane_storage<bf16_mixed_fp32_gradients, Ops> : mastered_storage<bfloat16, Ops> {};

/// Ops that can split and join fp32 lanes.
template <class Ops>
concept HasSplit = requires(bfloat16* high, std::uint16_t* low,
                            const typename Ops::lane_type& lanes) {
  { Ops::load_split(high, low) } -> std::same_as<typename Ops::lane_type>;
  Ops::store_split(high, low, lanes);
};

template <HasSplit Ops>
struct lane_storage<bf16_remainder, Ops> {
  using lane_type = typename Ops::lane_type;

  [[gnu::always_inline]] static inline lane_type load(const bfloat16* parameters,
                                                      const std::uint16_t* masters) {
    return Ops::load_split(parameters, masters);
  }
  [[gnu::always_inline]] static inline void store(bfloat16* parameters, std::uint16_t* masters,
                                                  const lane_type& lanes) {
    Ops::store_split(parameters, masters, lanes);
  }
};

}  // namespace zero::kernels::cpu
