// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/float16.hpp>

namespace zero::kernels::cpu {

/// Eight fp32 lanes.
///
/// The copy operations are written out so that the type is passed in memory: how a bare __m256
/// travels between functions depends on each one's target, and the functions that use this class
/// without the target attribute (the optimizer's body) must agree with those that have it.
struct avx2_lanes {
  __m256 value;

  avx2_lanes() noexcept = default;
  avx2_lanes(const avx2_lanes& other) noexcept : value(other.value) {}
  avx2_lanes& operator=(const avx2_lanes& other) noexcept {
    value = other.value;
    return *this;
  }
  ~avx2_lanes() = default;
};

/// `Ops` on AVX2, FMA and F16C. See scalar_ops for the meaning of each operation.
///
/// Every function carries the target attribute, so that the user's flags do not matter, and is
/// plain `inline`: always_inline would be an error wherever the caller lacks the attribute.
struct avx2_ops {
  using value_type = float;
  using lane_type = avx2_lanes;
  struct square_sums {
    alignas(32) double part[8] = {};
  };
  static constexpr std::size_t lanes = 8;

  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes set(float a) noexcept {
    return wrap(_mm256_set1_ps(a));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes load(const float* source) noexcept {
    return wrap(_mm256_loadu_ps(source));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes load(const bfloat16* source) noexcept {
    const __m256i wide = _mm256_cvtepu16_epi32(load_halves(source));
    return wrap(_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes load(const float16* source) noexcept {
    return wrap(_mm256_cvtph_ps(load_halves(source)));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline void store(float* target,
                                                            const avx2_lanes& a) noexcept {
    _mm256_storeu_ps(target, a.value);
  }
  [[gnu::target("avx2,fma,f16c")]] static inline void store(bfloat16* target,
                                                            const avx2_lanes& a) noexcept {
    const __m256i bits = _mm256_castps_si256(a.value);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i quiet_nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x0040));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a.value, a.value, _CMP_UNORD_Q));
    store_halves(target, _mm256_blendv_epi8(rounded, quiet_nan, is_nan));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline void store(float16* target,
                                                            const avx2_lanes& a) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                     _mm256_cvtps_ph(a.value, _MM_FROUND_TO_NEAREST_INT));
  }

  /// join_float in every lane.
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes load_split(
      const bfloat16* high, const std::uint16_t* low) noexcept {
    const __m256i upper = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(high)), 16);
    const __m256i lower = _mm256_cvtepu16_epi32(load_halves(low));
    const __m256i top_bit = _mm256_and_si256(lower, _mm256_set1_epi32(0x8000));
    const __m256i joined = _mm256_or_si256(upper, lower);
    return wrap(_mm256_castsi256_ps(_mm256_sub_epi32(joined, _mm256_slli_epi32(top_bit, 1))));
  }
  /// split_ties_away in every lane.
  [[gnu::target("avx2,fma,f16c")]] static inline void store_split(bfloat16* high,
                                                                  std::uint16_t* low,
                                                                  const avx2_lanes& a) noexcept {
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a.value, a.value, _CMP_UNORD_Q));
    const __m256i bits =
        _mm256_blendv_epi8(_mm256_castps_si256(a.value), _mm256_set1_epi32(0x7FC00000), is_nan);
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_set1_epi32(0x8000));
    store_halves(high, _mm256_srli_epi32(rounded, 16));
    store_halves(low, _mm256_and_si256(bits, _mm256_set1_epi32(0xFFFF)));
  }

  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes fma(const avx2_lanes& a,
                                                                const avx2_lanes& b,
                                                                const avx2_lanes& c) noexcept {
    return wrap(_mm256_fmadd_ps(a.value, b.value, c.value));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes mul(const avx2_lanes& a,
                                                                const avx2_lanes& b) noexcept {
    __m256 product = _mm256_mul_ps(a.value, b.value);
    asm("" : "+x"(product));  // g++ fuses intrinsics too: see detail::opaque
    return wrap(product);
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes add(const avx2_lanes& a,
                                                                const avx2_lanes& b) noexcept {
    return wrap(_mm256_add_ps(a.value, b.value));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes sub(const avx2_lanes& a,
                                                                const avx2_lanes& b) noexcept {
    return wrap(_mm256_sub_ps(a.value, b.value));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes div(const avx2_lanes& a,
                                                                const avx2_lanes& b) noexcept {
    return wrap(_mm256_div_ps(a.value, b.value));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes sqrt(const avx2_lanes& a) noexcept {
    return wrap(_mm256_sqrt_ps(a.value));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes negate(const avx2_lanes& a) noexcept {
    return wrap(_mm256_xor_ps(a.value, _mm256_set1_ps(-0.0F)));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes min(const avx2_lanes& a,
                                                                const avx2_lanes& b) noexcept {
    return wrap(_mm256_min_ps(a.value, b.value));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes max(const avx2_lanes& a,
                                                                const avx2_lanes& b) noexcept {
    return wrap(_mm256_max_ps(a.value, b.value));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes select(const avx2_lanes& a,
                                                                   const avx2_lanes& b,
                                                                   const avx2_lanes& x,
                                                                   const avx2_lanes& y) noexcept {
    const __m256 less = _mm256_cmp_ps(a.value, b.value, _CMP_LT_OQ);
    return wrap(_mm256_blendv_ps(y.value, x.value, less));
  }
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes sign(const avx2_lanes& a) noexcept {
    const __m256 zero = _mm256_setzero_ps();
    const __m256 is_nonzero = _mm256_cmp_ps(a.value, zero, _CMP_NEQ_OQ);  // false for NaN
    const __m256 sign_bit = _mm256_and_ps(a.value, _mm256_set1_ps(-0.0F));
    const __m256 unit = _mm256_or_ps(sign_bit, _mm256_set1_ps(1.0F));
    return wrap(_mm256_blendv_ps(a.value, unit, is_nonzero));
  }

  /// The square of an fp32 value is exact in double, so it does not matter that this is fused.
  [[gnu::target("avx2,fma,f16c")]] static inline void add_squares(square_sums& sums,
                                                                  const avx2_lanes& a) noexcept {
    const __m256d lower = _mm256_cvtps_pd(_mm256_castps256_ps128(a.value));
    const __m256d upper = _mm256_cvtps_pd(_mm256_extractf128_ps(a.value, 1));
    _mm256_store_pd(sums.part, _mm256_fmadd_pd(lower, lower, _mm256_load_pd(sums.part)));
    _mm256_store_pd(sums.part + 4, _mm256_fmadd_pd(upper, upper, _mm256_load_pd(sums.part + 4)));
  }
  static inline void store_sums(double* target, const square_sums& sums) noexcept {
    for (std::size_t i = 0; i < lanes; ++i)
      target[i] = sums.part[i];
  }

 private:
  [[gnu::target("avx2,fma,f16c")]] static inline avx2_lanes wrap(const __m256& value) noexcept {
    avx2_lanes result;
    result.value = value;
    return result;
  }
  static inline __m128i load_halves(const void* source) noexcept {
    return _mm_loadu_si128(static_cast<const __m128i*>(source));
  }
  /// The lower half of each 32-bit lane, which must hold no more.
  [[gnu::target("avx2,fma,f16c")]] static inline void store_halves(void* target,
                                                                   const __m256i& wide) noexcept {
    // The pack works inside 128-bit halves; the permutation brings their results together.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(wide, wide), 0x08);
    _mm_storeu_si128(static_cast<__m128i*>(target), _mm256_castsi256_si128(packed));
  }
};

}  // namespace zero::kernels::cpu

#endif
