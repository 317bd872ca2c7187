// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/float16.hpp>

// g++ 12 warns of uninitialised values inside its own AVX-512 intrinsics.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace zero::kernels::cpu {

/// Sixteen fp32 lanes. Passed in memory, like avx2_lanes and for the same reason.
struct avx512_lanes {
  __m512 value;

  avx512_lanes() noexcept = default;
  avx512_lanes(const avx512_lanes& other) noexcept : value(other.value) {}
  avx512_lanes& operator=(const avx512_lanes& other) noexcept {
    value = other.value;
    return *this;
  }
  ~avx512_lanes() = default;
};

/// `Ops` on AVX-512F. See scalar_ops for the meaning of each operation, avx2_ops for the
/// attributes.
struct avx512_ops {
  using value_type = float;
  using lane_type = avx512_lanes;
  struct square_sums {
    alignas(64) double part[16] = {};
  };
  static constexpr std::size_t lanes = 16;

  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes set(float a) noexcept {
    return wrap(_mm512_set1_ps(a));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes load(
      const float* source) noexcept {
    return wrap(_mm512_loadu_ps(source));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes load(
      const bfloat16* source) noexcept {
    return wrap(_mm512_castsi512_ps(_mm512_slli_epi32(load_halves(source), 16)));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes load(
      const float16* source) noexcept {
    return wrap(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source))));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline void store(
      float* target, const avx512_lanes& a) noexcept {
    _mm512_storeu_ps(target, a.value);
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline void store(
      bfloat16* target, const avx512_lanes& a) noexcept {
    const __m512i bits = _mm512_castps_si512(a.value);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a.value, a.value, _CMP_UNORD_Q);
    store_halves(target, _mm512_mask_or_epi32(rounded, is_nan, upper, _mm512_set1_epi32(0x0040)));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline void store(
      float16* target, const avx512_lanes& a) noexcept {
    // The unmasked form is a macro at -O0 and converts -1 to a mask there, with a warning.
    const __m256i halves = _mm512_maskz_cvtps_ph(0xFFFF, a.value, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), halves);
  }

  /// join_float in every lane.
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes load_split(
      const bfloat16* high, const std::uint16_t* low) noexcept {
    const __m512i upper = _mm512_slli_epi32(load_halves(high), 16);
    const __m512i lower = load_halves(low);
    const __m512i top_bit = _mm512_and_si512(lower, _mm512_set1_epi32(0x8000));
    const __m512i joined = _mm512_or_si512(upper, lower);
    return wrap(_mm512_castsi512_ps(_mm512_sub_epi32(joined, _mm512_slli_epi32(top_bit, 1))));
  }
  /// split_ties_away in every lane.
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline void store_split(
      bfloat16* high, std::uint16_t* low, const avx512_lanes& a) noexcept {
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a.value, a.value, _CMP_UNORD_Q);
    const __m512i bits =
        _mm512_mask_mov_epi32(_mm512_castps_si512(a.value), is_nan, _mm512_set1_epi32(0x7FC00000));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
    store_halves(high, _mm512_srli_epi32(rounded, 16));
    store_halves(low, bits);
  }

  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes fma(
      const avx512_lanes& a, const avx512_lanes& b, const avx512_lanes& c) noexcept {
    return wrap(_mm512_fmadd_ps(a.value, b.value, c.value));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes mul(
      const avx512_lanes& a, const avx512_lanes& b) noexcept {
    __m512 product = _mm512_mul_ps(a.value, b.value);
    asm("" : "+v"(product));  // g++ fuses intrinsics too: see detail::opaque
    return wrap(product);
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes add(
      const avx512_lanes& a, const avx512_lanes& b) noexcept {
    return wrap(_mm512_add_ps(a.value, b.value));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes sub(
      const avx512_lanes& a, const avx512_lanes& b) noexcept {
    return wrap(_mm512_sub_ps(a.value, b.value));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes div(
      const avx512_lanes& a, const avx512_lanes& b) noexcept {
    return wrap(_mm512_div_ps(a.value, b.value));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes sqrt(
      const avx512_lanes& a) noexcept {
    return wrap(_mm512_sqrt_ps(a.value));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes negate(
      const avx512_lanes& a) noexcept {
    return wrap(_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a.value), sign_bits())));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes min(
      const avx512_lanes& a, const avx512_lanes& b) noexcept {
    return wrap(_mm512_min_ps(a.value, b.value));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes max(
      const avx512_lanes& a, const avx512_lanes& b) noexcept {
    return wrap(_mm512_max_ps(a.value, b.value));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes select(
      const avx512_lanes& a, const avx512_lanes& b, const avx512_lanes& x,
      const avx512_lanes& y) noexcept {
    const __mmask16 less = _mm512_cmp_ps_mask(a.value, b.value, _CMP_LT_OQ);
    return wrap(_mm512_mask_blend_ps(less, y.value, x.value));
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes sign(
      const avx512_lanes& a) noexcept {
    const __mmask16 is_nonzero = _mm512_cmp_ps_mask(a.value, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    const __m512i sign_bit = _mm512_and_si512(_mm512_castps_si512(a.value), sign_bits());
    const __m512i one = _mm512_castps_si512(_mm512_set1_ps(1.0F));
    const __m512 unit = _mm512_castsi512_ps(_mm512_or_si512(sign_bit, one));
    return wrap(_mm512_mask_blend_ps(is_nonzero, a.value, unit));
  }

  /// The square of an fp32 value is exact in double, so it does not matter that this is fused.
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline void add_squares(
      square_sums& sums, const avx512_lanes& a) noexcept {
    const __m512d bits = _mm512_castps_pd(a.value);
    const __m256 upper_half = _mm256_castpd_ps(_mm512_extractf64x4_pd(bits, 1));
    const __m512d lower = _mm512_cvtps_pd(_mm512_castps512_ps256(a.value));
    const __m512d upper = _mm512_cvtps_pd(upper_half);
    _mm512_store_pd(sums.part, _mm512_fmadd_pd(lower, lower, _mm512_load_pd(sums.part)));
    _mm512_store_pd(sums.part + 8, _mm512_fmadd_pd(upper, upper, _mm512_load_pd(sums.part + 8)));
  }
  static inline void store_sums(double* target, const square_sums& sums) noexcept {
    for (std::size_t i = 0; i < lanes; ++i)
      target[i] = sums.part[i];
  }

 private:
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline avx512_lanes wrap(
      const __m512& value) noexcept {
    avx512_lanes result;
    result.value = value;
    return result;
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline __m512i sign_bits() noexcept {
    return _mm512_set1_epi32(INT32_MIN);
  }
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline __m512i load_halves(
      const void* source) noexcept {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(source)));
  }
  /// The lower half of each 32-bit lane.
  [[gnu::target("avx512f,avx2,fma,f16c")]] static inline void store_halves(
      void* target, const __m512i& wide) noexcept {
    _mm256_storeu_si256(static_cast<__m256i*>(target), _mm512_cvtepi32_epi16(wide));
  }
};

}  // namespace zero::kernels::cpu

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif
