// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <zero/error.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zero::kernels::cpu {

/// The ways in which a host kernel can be executed. All give the same bits.
enum class isa { scalar, avx2, avx512 };

constexpr std::string_view isa_name(isa path) noexcept {
  return path == isa::avx512 ? "AVX-512" : path == isa::avx2 ? "AVX2" : "scalar";
}

/// Whether this CPU and its operating system can run a path.
inline bool is_supported(isa path) noexcept {
#if defined(__x86_64__)
  if (path == isa::scalar)
    return true;
  // The builtin asks the operating system too (XGETBV); clang 14 does not know "f16c".
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  __builtin_cpu_init();
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c;
  if (path == isa::avx2)
    return has_avx2;
  return has_avx2 && __builtin_cpu_supports("avx512f") != 0;
#else
  return path == isa::scalar;
#endif
}

/// The path that kernels take when none is named: the widest this machine supports.
inline isa instruction_set() noexcept {
  static const isa best = is_supported(isa::avx512) ? isa::avx512
                          : is_supported(isa::avx2) ? isa::avx2
                                                    : isa::scalar;
  return best;
}

}  // namespace zero::kernels::cpu
