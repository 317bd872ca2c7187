// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <zero/config.hpp>
#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/numeric/float16.hpp>
#include <zero/numeric/split_float.hpp>

namespace zero {

/// No loss scaling: the scale is 1 for ever.
struct no_loss_scaling {
  static constexpr bool is_dynamic = false;
};

/// The scale halves at an overflow and doubles after a window of finite steps.
struct dynamic_loss_scaling {
  static constexpr bool is_dynamic = true;
};

/// Stands for `master_storage = void` where an object is needed: it holds nothing.
struct no_master {};

namespace detail {

template <class P>
using master_of = std::conditional_t<std::is_void_v<typename P::master_storage>, no_master,
                                     typename P::master_storage>;

}  // namespace detail

/// The exact map between the stored bits and the value that the optimizer updates:
/// `load(parameter, master)` and `store(value, parameter&, master&)`, with no_master in the place
/// of the master where `master_storage` is void.
template <class P>
concept HasStorage = requires(const typename P::parameter_type& stored,
                              const detail::master_of<P>& kept,
                              typename P::parameter_type& parameter, detail::master_of<P>& master,
                              typename P::compute_type value) {
  { P::load(stored, kept) } -> std::convertible_to<typename P::compute_type>;
  P::store(value, parameter, master);
};

/// Element types of the model states and the exact map between the stored bits and the fp32 value
/// that the optimizer updates.
///
/// `parameter_type`: what forward and backward read, and what is gathered.
/// `gradient_type`: what the user writes and what travels in the reduce-scatter.
/// `accumulation_type`: holds sums over micro-batches.
/// `moment_type`: holds the optimizer's moments.
/// `compute_type`: float or double, in which sums and updates are computed.
/// `master_storage`: void, float, or std::uint16_t (the low half of a split fp32 value).
/// `scales_before_rounding`: the mean over ranks is taken inside the fold (fp16), otherwise the
/// sum travels and the mean factor is folded into the update.
template <class P>
concept Precision = requires {
  { P::name } -> std::convertible_to<std::string_view>;
  typename P::parameter_type;
  typename P::gradient_type;
  typename P::accumulation_type;
  typename P::moment_type;
  typename P::compute_type;
  typename P::master_storage;
  typename P::loss_scaling;
  { P::scales_before_rounding } -> std::convertible_to<bool>;
  { P::loss_scaling::is_dynamic } -> std::convertible_to<bool>;
  requires std::floating_point<typename P::compute_type>;
  requires HasStorage<P>;
};

/// The stored type of a policy's master, no_master where there is none.
template <Precision P>
using master_type = detail::master_of<P>;

/// True where the policy stores something beside the parameter to rebuild the fp32 value.
template <Precision P>
inline constexpr bool has_master = !std::is_void_v<typename P::master_storage>;

/// Everything in fp32: 4 + 4 + 8 bytes per element with two moments.
struct fp32 {
  static constexpr std::string_view name = "fp32";
  using parameter_type = float;
  using gradient_type = float;
  using accumulation_type = float;
  using moment_type = float;
  using compute_type = float;
  using master_storage = void;
  using loss_scaling = no_loss_scaling;
  static constexpr bool scales_before_rounding = false;

  static ZERO_HOST_DEVICE constexpr float load(float parameter, no_master) noexcept {
    return parameter;
  }
  static ZERO_HOST_DEVICE constexpr void store(float value, float& parameter, no_master&) noexcept {
    parameter = value;
  }
};

namespace detail {

/// What the mixed policies share: a parameter in 16 bits beside its fp32 master.
template <class Parameter, class Gradient>
struct with_fp32_master {
  using parameter_type = Parameter;
  using gradient_type = Gradient;
  using accumulation_type = float;
  using moment_type = float;
  using compute_type = float;
  using master_storage = float;

  static ZERO_HOST_DEVICE constexpr float load(Parameter, float master) noexcept { return master; }
  static ZERO_HOST_DEVICE constexpr void store(float value, Parameter& parameter,
                                               float& master) noexcept {
    master = value;
    parameter = Parameter{value};
  }
};

}  // namespace detail

/// bf16 parameters and gradients, fp32 master and moments: 2 + 2 + 12 bytes per element.
struct bf16_mixed : detail::with_fp32_master<bfloat16, bfloat16> {
  static constexpr std::string_view name = "bf16_mixed";
  using loss_scaling = no_loss_scaling;
  static constexpr bool scales_before_rounding = false;
};

/// fp16 parameters and gradients with dynamic loss scaling, fp32 master and moments: 2 + 2 + 12.
struct fp16_mixed : detail::with_fp32_master<float16, float16> {
  static constexpr std::string_view name = "fp16_mixed";
  using loss_scaling = dynamic_loss_scaling;
  static constexpr bool scales_before_rounding = true;
};

/// bf16 parameters, fp32 gradients: 2 + 4 + 12 bytes per element (Megatron-LM's default).
struct bf16_mixed_fp32_gradients : detail::with_fp32_master<bfloat16, float> {
  static constexpr std::string_view name = "bf16_mixed_fp32_gradients";
  using loss_scaling = no_loss_scaling;
  static constexpr bool scales_before_rounding = false;
};

/// bf16 parameter plus the 16 bits that are missing from the fp32 master: 2 + 2 + 10 bytes.
///
/// The parameter is the master rounded to bf16 with ties away from zero, because that rounding
/// can be inverted with 16 bits and nearest-even cannot (an even bf16 value has 65,537 fp32
/// preimages). The master is rebuilt exactly.
struct bf16_remainder {
  static constexpr std::string_view name = "bf16_remainder";
  using parameter_type = bfloat16;
  using gradient_type = bfloat16;
  using accumulation_type = float;
  using moment_type = float;
  using compute_type = float;
  using master_storage = std::uint16_t;
  using loss_scaling = no_loss_scaling;
  static constexpr bool scales_before_rounding = false;

  static ZERO_HOST_DEVICE constexpr float load(bfloat16 parameter,
                                               std::uint16_t remainder) noexcept {
    return join_float(parameter, remainder);
  }
  static ZERO_HOST_DEVICE constexpr void store(float value, bfloat16& parameter,
                                               std::uint16_t& remainder) noexcept {
    const split_float parts = split_ties_away(value);
    parameter = parts.high;
    remainder = parts.low;
  }
};

static_assert(Precision<fp32>);
static_assert(Precision<bf16_mixed>);
static_assert(Precision<fp16_mixed>);
static_assert(Precision<bf16_mixed_fp32_gradients>);
static_assert(Precision<bf16_remainder>);

}  // namespace zero
