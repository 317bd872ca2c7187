// SPDX-License-Identifier: Apache-2.0
// A file of a program that trains on GPUs, compiled without nvcc and without CUDA's headers. It
// calls the device functions that an engine calls; the linker finds them only where another file
// instantiates them.
#include <cstdint>
#include <cstdio>
#include <span>

#include <zero/detail/cuda_try.hpp>
#include <zero/kernels/cast.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/kernels/instantiate.hpp>
#include <zero/kernels/norm.hpp>

namespace {

namespace kernels = zero::kernels;
using zero::cuda_space;
using optimizer = zero::adamw;
using precision = zero::bf16_mixed;

/// With no elements, so that nothing is launched.
void call_everything(kernels::cuda_stream stream) {
  zero::bfloat16* const gradients = nullptr;
  float* const sums = nullptr;
  const kernels::update_operands<optimizer, precision, zero::bfloat16> by_gradients;
  const kernels::update_operands<optimizer, precision, float> by_sums;
  kernels::update(cuda_space{}, by_gradients, nullptr, nullptr, stream);
  kernels::update(cuda_space{}, by_sums, nullptr, nullptr, stream);
  kernels::convert(cuda_space{}, static_cast<const float*>(sums), gradients, 0, stream);
  kernels::convert(cuda_space{}, static_cast<const zero::bfloat16*>(gradients), sums, 0, stream);
  kernels::accumulate(cuda_space{}, static_cast<const zero::bfloat16*>(gradients), sums, 0, stream);
  kernels::accumulate(cuda_space{}, static_cast<const float*>(sums), gradients, 0, stream);
  kernels::fill_zero(cuda_space{}, gradients, 0, stream);
  kernels::sum_of_squares(cuda_space{}, static_cast<const float*>(sums), 0, nullptr, nullptr,
                          stream);
  kernels::sum_of_squares(cuda_space{}, static_cast<const zero::bfloat16*>(gradients), 0, nullptr,
                          nullptr, stream);
  const zero::bfloat16* const input = nullptr;
  const std::span<const zero::bfloat16* const> inputs(&input, 1);
  kernels::fold(cuda_space{}, inputs, gradients, 0, 1.0F, stream);
  kernels::fold(cuda_space{}, inputs, sums, 0, 1.0F, stream);
  const double* const number = nullptr;
  kernels::fold(cuda_space{}, std::span<const double* const>(&number, 1),
                static_cast<double*>(nullptr), 0, 1.0F, stream);
  // These are launched whatever their arguments are: linked here, not run.
  if (stream != nullptr) {
    kernels::write_step_message<optimizer, precision>(cuda_space{}, nullptr, nullptr, nullptr, true,
                                                      nullptr, stream);
    kernels::advance<precision>(cuda_space{}, optimizer{}, {}, stream);
  }
}

}  // namespace

int main() {
  call_everything(nullptr);
  // Memory that no device can write to: an error with a GPU, and without one.
  float value = 1;
  try {
    kernels::fill_zero(cuda_space{}, &value, 1, nullptr);
  } catch (const zero::cuda_error& failure) {
    std::printf("%s\n", failure.what());
    return failure.code() != 0 && failure.operation() == "kernels::fill_zero" ? 0 : 1;
  }
  std::printf("no error was reported\n");
  return 1;
}
