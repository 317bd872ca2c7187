// SPDX-License-Identifier: Apache-2.0
// Kernels that only pass over memory, against memcpy of as many bytes as they read.
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>
#include <zero/kernels/cast.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/kernels/norm.hpp>

#include "interleaved.hpp"

namespace {

/// memcpy moves each of `bytes` twice (read and write), so half of them are copied.
class copy_limit {
 public:
  explicit copy_limit(std::size_t bytes) : from_(bytes / 2, 1), to_(bytes / 2) {}
  void operator()() {
    std::memcpy(to_.data(), from_.data(), from_.size());
    benchmark::DoNotOptimize(to_.data());
    benchmark::ClobberMemory();
  }

 private:
  std::vector<unsigned char> from_;
  std::vector<unsigned char> to_;
};

template <class T>
void norm(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const std::vector<T> values(count, T(0.5F));
  copy_limit limit(count * sizeof(T));
  kernel_bench::compare(
      state, static_cast<double>(count), sizeof(T),
      [&] {
        double sum =
            zero::kernels::sum_of_squares(zero::host_space{}, values.data(), values.size());
        benchmark::DoNotOptimize(sum);
      },
      [&] { limit(); });
}

template <class T>
void fold(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const auto ranks = static_cast<std::size_t>(state.range(1));
  const std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count, T(0.5F)));
  std::vector<const T*> sources;
  for (const auto& input : inputs)
    sources.push_back(input.data());
  std::vector<T> output(count);
  const std::size_t bytes = (ranks + 1) * sizeof(T);
  copy_limit limit(count * bytes);
  kernel_bench::compare(
      state, static_cast<double>(count), static_cast<double>(bytes),
      [&] {
        zero::kernels::fold(zero::host_space{}, std::span<const T* const>(sources), output.data(),
                            output.size(), 1.0F);
        benchmark::ClobberMemory();
      },
      [&] { limit(); });
}

template <class A, class B>
void convert(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const std::vector<A> input(count, A(0.5F));
  std::vector<B> output(count);
  copy_limit limit(count * (sizeof(A) + sizeof(B)));
  kernel_bench::compare(
      state, static_cast<double>(count), sizeof(A) + sizeof(B),
      [&] {
        zero::kernels::convert(zero::host_space{}, input.data(), output.data(), output.size());
        benchmark::ClobberMemory();
      },
      [&] { limit(); });
}

constexpr int in_cache = 32 * 1024;
constexpr int in_memory = 16 * 1024 * 1024;

BENCHMARK(norm<float>)->Arg(in_cache)->Arg(in_memory)->UseManualTime();
BENCHMARK(norm<zero::bfloat16>)->Arg(in_cache)->Arg(in_memory)->UseManualTime();
BENCHMARK(fold<float>)
    ->ArgsProduct({{in_cache, in_memory}, {2, 3, 4, 8}})
    ->Args({in_cache, 12})
    ->UseManualTime();
BENCHMARK(fold<zero::bfloat16>)->ArgsProduct({{in_cache, in_memory}, {2, 4, 8}})->UseManualTime();
BENCHMARK(convert<float, zero::bfloat16>)->Arg(in_cache)->Arg(in_memory)->UseManualTime();
BENCHMARK(convert<zero::bfloat16, float>)->Arg(in_cache)->Arg(in_memory)->UseManualTime();
BENCHMARK(convert<float, zero::float16>)->Arg(in_cache)->Arg(in_memory)->UseManualTime();

}  // namespace
