// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <zero/cuda/stream.hpp>
#include <zero/kernels/cast.hpp>
#include <zero/kernels/chunked_norm.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/kernels/instantiate.hpp>

#include "arrays.hpp"
#include "four_elements.hpp"
#include "report.hpp"
#include "timing.hpp"

namespace gpu_bench {
namespace {

using zero::cuda_space;

/// Measures kernels one after the other, and keeps the rows.
class bench {
 public:
  explicit bench(std::uint64_t elements) : elements_(elements) {}

  std::uint64_t elements() const noexcept { return elements_; }
  const zero::unique_cuda_stream& stream() const noexcept { return stream_; }
  std::vector<kernel_row> take_rows() { return std::move(rows_); }

  /// `kernel()` reads and writes `bytes_per_element` of each element.
  template <class Kernel>
  void add(std::string name, double bytes_per_element, bool has_goal, Kernel kernel) {
    const double bytes = bytes_per_element * static_cast<double>(elements_);
    // Half of the bytes are read by a copy, the other half written.
    const auto half = static_cast<std::uint64_t>(bytes / 2);
    const device_array<std::byte> from(half);
    const device_array<std::byte> to(half);
    // Enough of a short kernel that the time stamps around it do not count.
    constexpr double sample_bytes = 4e9;
    const int repeats = std::max(1, static_cast<int>(sample_bytes / bytes));
    const compared_seconds seconds = compare(stream_, std::min(repeats, 100), kernel, [&] {
      zero::detail::cuda_try(
          cudaMemcpyAsync(to.data(), from.data(), half, cudaMemcpyDeviceToDevice, stream_.get()),
          "cudaMemcpyAsync");
    });
    rows_.push_back({std::move(name), elements_, bytes, seconds.kernel, seconds.copy, has_goal});
  }

 private:
  std::uint64_t elements_;
  zero::unique_cuda_stream stream_;
  std::vector<kernel_row> rows_;
};

/// Each array once: gradients are read, states read and written. A parameter that is only its
/// master's rounding is not read.
template <class O, class P, class G>
constexpr double update_bytes() {
  constexpr std::size_t master = zero::has_master<P> ? sizeof(zero::master_type<P>) : 0;
  constexpr bool reads_parameter = master < sizeof(typename P::compute_type);
  return static_cast<double>(
      sizeof(typename P::parameter_type) * (reads_parameter ? 2 : 1) + 2 * master +
      2 * O::moments_per_element * sizeof(typename P::moment_type) + sizeof(G));
}

/// The arrays of an update in device memory, with values as in training.
template <class O, class P, class G>
class update_arrays {
 public:
  explicit update_arrays(const bench& b)
      : parameters_(b.elements()),
        masters_(zero::has_master<P> ? b.elements() : 1),
        gradients_(b.elements()),
        control_(1),
        scalars_(O::scalar_count) {
    parameters_.fill(varied_values<typename P::parameter_type>(1.0F, true), b.stream());
    if constexpr (zero::has_master<P>) fill_masters(b.stream());
    gradients_.fill(varied_values<G>(0.01F, true), b.stream());
    for (std::size_t k = 0; k < O::moments_per_element; ++k) {
      moments_.emplace_back(b.elements());
      const bool is_second = k == 1;
      moments_[k].fill(
          varied_values<typename P::moment_type>(is_second ? 1e-4F : 0.01F, !is_second),
          b.stream());
    }
    control_.fill({zero::kernels::control_block{}}, b.stream());
    std::vector<compute_type> scalars;
    for (const double value : O{}.prepare(10, {.lr = 1e-3, .weight_decay = 0.1})) {
      scalars.push_back(static_cast<compute_type>(value));
    }
    scalars_.fill(scalars, b.stream());
  }

  zero::kernels::update_operands<O, P, G> operands() const {
    zero::kernels::update_operands<O, P, G> result;
    result.parameters = parameters_.data();
    if constexpr (zero::has_master<P>) result.masters = masters_.data();
    for (std::size_t k = 0; k < moments_.size(); ++k) result.moments[k] = moments_[k].data();
    result.gradients = gradients_.data();
    result.count = gradients_.size();
    return result;
  }
  const zero::kernels::control_block* control() const noexcept { return control_.data(); }
  const typename P::compute_type* scalars() const noexcept { return scalars_.data(); }

 private:
  using compute_type = typename P::compute_type;

  /// What belongs to the parameters, which have the same values in the same order.
  void fill_masters(zero::cuda_queue q) {
    std::vector<typename P::parameter_type> parameters(std::size_t{1} << 20U);
    std::vector<zero::master_type<P>> masters(parameters.size());
    const std::vector<float> values = varied_values<float>(1.0F, true);
    for (std::size_t i = 0; i < masters.size(); ++i) {
      P::store(values[i], parameters[i], masters[i]);
    }
    parameters_.fill(parameters, q);
    masters_.fill(masters, q);
  }

  device_array<typename P::parameter_type> parameters_;
  device_array<zero::master_type<P>> masters_;
  device_array<G> gradients_;
  std::vector<device_array<typename P::moment_type>> moments_;
  device_array<zero::kernels::control_block> control_;
  device_array<compute_type> scalars_;
};

template <class O, class P, class G>
void add_update(bench& b) {
  const update_arrays<O, P, G> arrays(b);
  const auto operands = arrays.operands();
  b.add("update " + std::string(O::name) + " " + std::string(P::name) + " by " +
            std::string(zero::element_traits<G>::name),
        update_bytes<O, P, G>(), true, [&] {
          zero::kernels::update(cuda_space{}, operands, arrays.control(), arrays.scalars(),
                                b.stream().get());
        });
}

void add_four_elements(bench& b) {
  const update_arrays<zero::adamw, zero::bf16_mixed, zero::bfloat16> arrays(b);
  const auto operands = arrays.operands();
  b.add("update adamw bf16_mixed by bfloat16, 4 elements per thread",
        update_bytes<zero::adamw, zero::bf16_mixed, zero::bfloat16>(), false, [&] {
          update_four_elements(operands, arrays.control(), arrays.scalars(), b.stream().get());
        });
}

template <class G>
void add_norm(bench& b) {
  device_array<G> values(b.elements());
  values.fill(varied_values<G>(0.01F, true), b.stream());
  const device_array<double> scratch(zero::kernels::norm_scratch_elements(b.elements()) + 1);
  device_array<double> total(1);
  total.fill({0.0}, b.stream());
  b.add("norm of " + std::string(zero::element_traits<G>::name), sizeof(G), true, [&] {
    zero::kernels::sum_of_squares(cuda_space{}, static_cast<const G*>(values.data()), values.size(),
                                  scratch.data(), total.data(), b.stream().get());
  });
}

template <class A, class B>
void add_convert(bench& b) {
  device_array<A> input(b.elements());
  input.fill(varied_values<A>(1.0F, true), b.stream());
  const device_array<B> output(b.elements());
  b.add("convert " + std::string(zero::element_traits<A>::name) + " to " +
            std::string(zero::element_traits<B>::name),
        sizeof(A) + sizeof(B), false, [&] {
          zero::kernels::convert(cuda_space{}, static_cast<const A*>(input.data()), output.data(),
                                 input.size(), b.stream().get());
        });
}

template <class T>
void add_fold(bench& b, std::size_t ranks) {
  std::vector<device_array<T>> inputs;
  std::vector<const T*> sources;
  for (std::size_t r = 0; r < ranks; ++r) {
    inputs.emplace_back(b.elements());
    inputs[r].fill(varied_values<T>(1.0F, true), b.stream());
    sources.push_back(inputs[r].data());
  }
  const device_array<T> output(b.elements());
  b.add("fold of " + std::to_string(ranks) + " x " + std::string(zero::element_traits<T>::name),
        static_cast<double>((ranks + 1) * sizeof(T)), false, [&] {
          zero::kernels::fold(cuda_space{}, std::span<const T* const>(sources), output.data(),
                              output.size(), 1.0F, b.stream().get());
        });
}

template <class O>
[[maybe_unused]] void add_updates_of(bench& b) {
  add_update<O, zero::fp32, float>(b);
  add_update<O, zero::bf16_mixed, zero::bfloat16>(b);
  add_update<O, zero::fp16_mixed, zero::float16>(b);
  add_update<O, zero::bf16_mixed_fp32_gradients, float>(b);
  add_update<O, zero::bf16_remainder, zero::bfloat16>(b);
}

}  // namespace

std::vector<kernel_row> measure_kernels(std::uint64_t elements) {
  bench b(elements);
#if defined(ZERO_TEST_GPU_ALL)
  add_updates_of<zero::adamw>(b);
  add_updates_of<zero::adam>(b);
  add_updates_of<zero::sgd>(b);
  add_updates_of<zero::lion>(b);
  add_convert<float, zero::float16>(b);
#else
  add_update<zero::adamw, zero::bf16_mixed, zero::bfloat16>(b);
#endif
  add_update<zero::adamw, zero::bf16_mixed, float>(b);
  add_four_elements(b);
  add_norm<zero::bfloat16>(b);
  add_norm<float>(b);
  add_convert<float, zero::bfloat16>(b);
  add_convert<zero::bfloat16, float>(b);
  for (const std::size_t ranks : {2U, 4U, 8U}) add_fold<zero::bfloat16>(b, ranks);
  return b.take_rows();
}

}  // namespace gpu_bench
