// SPDX-License-Identifier: Apache-2.0
// The fused update against the same streams of memory with next to no arithmetic: how far is one
// optimizer step from what the memory allows? Sizes: second-level cache, and main memory.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <zero/kernels/update.hpp>

#include "interleaved.hpp"

namespace {

using zero::kernels::cpu::isa;

/// One addition per stored value: the memory traffic of an optimizer with two moments.
struct streams_only {
  static constexpr std::string_view name = "streams_only";
  static constexpr std::size_t moments_per_element = 2;
  static constexpr std::size_t scalar_count = 0;
  double weight_decay = 0.0;

  std::array<double, 0> prepare(std::uint64_t, const zero::update_arguments&) const { return {}; }
  template <class Ops, class V>
  [[gnu::always_inline]] static inline void update(V& parameter, std::array<V, 2>& moments,
                                                   const V& gradient, const std::array<V, 0>&) {
    moments[0] = Ops::add(moments[0], gradient);
    moments[1] = Ops::add(moments[1], gradient);
    parameter = Ops::add(parameter, gradient);
  }
};

template <class P>
struct arrays {
  std::vector<typename P::parameter_type> parameters;
  std::vector<zero::master_type<P>> masters;
  std::vector<float> m;
  std::vector<float> v;
  std::vector<typename P::gradient_type> gradients;

  explicit arrays(std::size_t count)
      : parameters(count),
        masters(count),
        m(count),
        v(count, 1e-4F),
        gradients(count, typename P::gradient_type(0.01F)) {}

  template <class O>
  zero::kernels::update_operands<O, P, typename P::gradient_type> operands() {
    zero::kernels::update_operands<O, P, typename P::gradient_type> result;
    result.parameters = parameters.data();
    if constexpr (zero::has_master<P>)
      result.masters = masters.data();
    result.moments = {m.data(), v.data()};
    result.gradients = gradients.data();
    result.count = parameters.size();
    return result;
  }
};

/// Read and written: parameter (16-bit ones are only written), master, moments; read: gradient.
template <class P>
constexpr double bytes_per_element() {
  constexpr bool reads_parameter = !zero::has_master<P> || sizeof(zero::master_type<P>) == 2;
  const std::size_t parameter = sizeof(typename P::parameter_type) * (reads_parameter ? 2U : 1U);
  const std::size_t master = zero::has_master<P> ? 2 * sizeof(zero::master_type<P>) : 0;
  return static_cast<double>(parameter + master + 16 + sizeof(typename P::gradient_type));
}

template <class P, isa path>
void adamw_update(benchmark::State& state) {
  if (!zero::kernels::cpu::is_supported(path)) {
    state.SkipWithError("not on this CPU");
    return;
  }
  const auto count = static_cast<std::size_t>(state.range(0));
  arrays<P> data(count);
  arrays<P> limit_data(count);
  const auto update = data.template operands<zero::adamw>();
  const auto limit = limit_data.template operands<streams_only>();
  const auto scalars = zero::adamw{}.prepare(10, {.lr = 1e-3, .weight_decay = 0.1});
  kernel_bench::compare(
      state, static_cast<double>(count), bytes_per_element<P>(),
      [&] { zero::kernels::update(zero::host_space{}, update, scalars, 0.5F, path); },
      [&] { zero::kernels::update(zero::host_space{}, limit, {}, 0.0F, path); });
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(16 * 1024)->Arg(16 * 1024 * 1024)->UseManualTime();
}

BENCHMARK_TEMPLATE(adamw_update, zero::fp32, isa::avx2)->Apply(sizes);
BENCHMARK_TEMPLATE(adamw_update, zero::fp32, isa::avx512)->Apply(sizes);
BENCHMARK_TEMPLATE(adamw_update, zero::bf16_mixed, isa::avx2)->Apply(sizes);
BENCHMARK_TEMPLATE(adamw_update, zero::bf16_mixed, isa::avx512)->Apply(sizes);
BENCHMARK_TEMPLATE(adamw_update, zero::fp16_mixed, isa::avx2)->Apply(sizes);
BENCHMARK_TEMPLATE(adamw_update, zero::bf16_remainder, isa::avx2)->Apply(sizes);
BENCHMARK_TEMPLATE(adamw_update, zero::bf16_mixed, isa::scalar)->Arg(16 * 1024)->UseManualTime();

}  // namespace
