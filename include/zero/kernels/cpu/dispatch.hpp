// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>

#include <zero/config.hpp>
#include <zero/error.hpp>
#include <zero/kernels/cpu/avx2.hpp>
#include <zero/kernels/cpu/avx512.hpp>
#include <zero/kernels/cpu/instruction_set.hpp>
#include <zero/numeric/scalar_ops.hpp>

namespace zero::kernels::cpu {

// Each function below is where a kernel meets an instruction set. The kernel's own code has no
// target attribute: it is inlined here, and with it (flatten) the operations, which have one.

template <class Kernel>
[[gnu::flatten]] inline void run_scalar(const Kernel& kernel) {
  kernel.template run<scalar_ops<float>>();
}

#if ZERO_HAS_X86_KERNELS
template <class Kernel>
[[gnu::flatten, gnu::target("avx2,fma,f16c")]] inline void run_avx2(const Kernel& kernel) {
  kernel.template run<avx2_ops>();
}

template <class Kernel>
[[gnu::flatten, gnu::target("avx512f,avx2,fma,f16c")]] inline void run_avx512(
    const Kernel& kernel) {
  kernel.template run<avx512_ops>();
}
#endif

/// Runs `kernel.run<Ops>()` with the Ops of a path.
///
/// Throws: usage_error when this machine cannot run the path.
template <class Kernel>
void run(isa path, const Kernel& kernel) {
  if (path != instruction_set() && !is_supported(path)) {
    throw usage_error("kernels: " + std::string(isa_name(path)) + " is not on this CPU");
  }
#if ZERO_HAS_X86_KERNELS
  if (path == isa::avx512)
    return run_avx512(kernel);
  if (path == isa::avx2)
    return run_avx2(kernel);
#endif
  run_scalar(kernel);
}

}  // namespace zero::kernels::cpu
