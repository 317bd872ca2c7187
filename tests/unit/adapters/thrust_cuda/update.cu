// SPDX-License-Identifier: Apache-2.0
// thrust_update on Thrust's CUDA system: that nvcc takes it, and, where there is a GPU, that it
// gives the bits of the host's kernels. Without one it exits with 77, which ctest reports as
// skipped.
#include <zero/adapters/thrust.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>

#include <zero/cuda/device.hpp>
#include <zero/cuda/stream.hpp>

#include "unit/kernels/kernel_cases.hpp"

namespace {

/// A buffer's elements on the device, and back when it goes.
template <class Buffer>
class on_device {
 public:
  using value_type = std::remove_reference_t<decltype(*std::declval<Buffer&>().data())>;

  explicit on_device(Buffer& host) : host_(host), device_(host.data(), host.data() + host.size()) {}

  value_type* data() { return zero::as_range<zero::full>(device_).data(); }

  void copy_back(zero::cuda_queue queue) {
    const zero::range<value_type, zero::full> target(host_.data(), host_.size());
    zero::copy_from_vector(device_, target, queue);
  }

 private:
  Buffer& host_;
  thrust::device_vector<value_type> device_;
};

/// One step on the device and one on the host; empty where the bits are equal.
template <class O, class P, class G>
std::string difference(std::uint64_t count, const zero::unique_cuda_stream& stream) {
  kernel_tests::model_states<O, P, G> expected(count, 0, count, true);
  auto actual = expected;
  expected.step(1, zero::kernels::cpu::instruction_set());

  on_device parameters(actual.parameters);
  on_device masters(actual.masters);
  on_device gradients(actual.gradients);
  std::vector<on_device<kernel_tests::buffer<typename P::moment_type>>> moments;
  moments.reserve(actual.moments.size());
  for (auto& moment : actual.moments) moments.emplace_back(moment);

  zero::kernels::update_operands<O, P, G> operands;
  operands.parameters = parameters.data();
  zero::master_type<P>* const device_masters = masters.data();
  if constexpr (zero::has_master<P>) operands.masters = device_masters;
  for (std::size_t k = 0; k < moments.size(); ++k) operands.moments[k] = moments[k].data();
  operands.gradients = gradients.data();
  operands.count = count;
  const auto scalars = O{}.prepare(1, {.lr = 0.01, .weight_decay = 0.1});
  zero::thrust_update(thrust::cuda::par_nosync.on(stream.get()), operands, scalars, 0.75F);

  parameters.copy_back(stream);
  masters.copy_back(stream);
  for (auto& moment : moments) moment.copy_back(stream);
  stream.synchronize();
  return actual.difference(expected);
}

int run() {
  const zero::cuda_devices devices = zero::cuda_device_count();
  if (devices.count == 0) {
    std::printf("thrust_update was compiled for a device, and not run: %s\n",
                devices.reason.c_str());
    return 77;
  }
  const zero::unique_cuda_stream stream;
  int failures = 0;
  kernel_tests::for_each_combination([&]<class O, class P, class G>() {
    for (const std::uint64_t count : {0, 1, 2, 15, 16, 17, 255, 256, 257, 1000, 4096, 100003}) {
      const std::string text = difference<O, P, G>(count, stream);
      if (text.empty()) continue;
      std::printf("%s %s, %llu elements: %s\n", O::name.data(), P::name.data(),
                  static_cast<unsigned long long>(count), text.c_str());
      ++failures;
    }
  });
  std::printf("thrust_update on a device: %d differences from the host\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& problem) {
    std::printf("%s\n", problem.what());
    return 1;
  }
}
