// SPDX-License-Identifier: Apache-2.0
// Prints one line per path: its name and a hash of every kernel's results on fixed inputs.
// flags_matrix.py builds it with many compilers and flags and requires one hash.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <zero/kernels/cast.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/kernels/norm.hpp>
#include <zero/kernels/update.hpp>

#include "kernel_cases.hpp"

namespace {

using namespace kernel_tests;

constexpr std::size_t count = 1003;

class fnv1a {
 public:
  template <class T>
  void add(const T* values, std::size_t size) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(values);
    for (std::size_t i = 0; i < size * sizeof(T); ++i)
      state_ = (state_ ^ bytes[i]) * 0x100000001B3U;
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325U;
};

template <class O, class P>
void add_update(fnv1a& hash, isa path) {
  model_states<O, P, typename P::gradient_type> states(count, 1, 42, false);
  for (std::uint64_t step = 1; step <= 10; ++step)
    states.step(step, path);
  hash.add(states.parameters.data(), count);
  if constexpr (zero::has_master<P>)
    hash.add(states.masters.data(), count);
  for (const auto& moments : states.moments)
    hash.add(moments.data(), count);
}

template <class O>
void add_updates(fnv1a& hash, isa path) {
  add_update<O, zero::fp32>(hash, path);
  add_update<O, zero::bf16_mixed>(hash, path);
  add_update<O, zero::fp16_mixed>(hash, path);
  add_update<O, zero::bf16_mixed_fp32_gradients>(hash, path);
  add_update<O, zero::bf16_remainder>(hash, path);
}

template <class T>
void add_fold_norm_and_cast(fnv1a& hash, isa path) {
  sequence values(7);
  std::vector<std::vector<T>> inputs(11, std::vector<T>(count));
  std::vector<const T*> sources;
  for (auto& input : inputs) {
    for (T& value : input)
      value = static_cast<T>(values.unit());
    sources.push_back(input.data());
  }
  for (std::size_t ranks = 1; ranks <= inputs.size(); ++ranks) {
    std::vector<T> folded(count);
    const std::span<const T* const> used(sources.data(), ranks);
    zero::kernels::fold(zero::host_space{}, used, folded.data(), count, 0.37F, path);
    hash.add(folded.data(), count);
    const double squares =
        zero::kernels::sum_of_squares(zero::host_space{}, folded.data(), count, path);
    hash.add(&squares, 1);
    std::vector<float> sums(count, 0.25F);
    zero::kernels::accumulate(zero::host_space{}, folded.data(), sums.data(), count, path);
    std::vector<zero::float16> halves(count);
    zero::kernels::convert(zero::host_space{}, sums.data(), halves.data(), count, path);
    hash.add(halves.data(), count);
  }
}

}  // namespace

int main() {
  for (const isa path : {isa::scalar, isa::avx2, isa::avx512}) {
    if (!zero::kernels::cpu::is_supported(path))
      continue;
    fnv1a hash;
    add_updates<zero::adamw>(hash, path);
    add_updates<zero::adam>(hash, path);
    add_updates<zero::sgd>(hash, path);
    add_updates<zero::lion>(hash, path);
    add_fold_norm_and_cast<float>(hash, path);
    add_fold_norm_and_cast<zero::bfloat16>(hash, path);
    add_fold_norm_and_cast<zero::float16>(hash, path);
    std::printf("%s %016llx\n", std::string(zero::kernels::cpu::isa_name(path)).c_str(),
                static_cast<unsigned long long>(hash.value()));
  }
}
