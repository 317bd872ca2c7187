// SPDX-License-Identifier: Apache-2.0
// timeout: 300
// links: zero_gpu_listener zero_gpu_kernels
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/kernels/instantiate.hpp>

#include "gpu/device_array.hpp"
#include "gpu/selection.hpp"

namespace {

using namespace gpu_tests;
using kernel_tests::buffer;
using kernel_tests::device_states;

constexpr float gradient_scale = 0.75F;
constexpr std::uint64_t step = 3;
constexpr zero::update_arguments arguments{.lr = 0.01, .weight_decay = 0.1};

/// One update of `states` on the device.
template <class O, class P, class G>
void update_on_device(device_states<O, P, G>& states, const zero::unique_cuda_stream& stream,
                      bool is_skipped = false) {
  using compute_type = typename P::compute_type;
  zero::kernels::control_block control;
  control.gradient_scale = gradient_scale;
  control.found_inf = is_skipped ? 1 : 0;
  const auto prepared = O{}.prepare(step, arguments);
  std::array<compute_type, O::scalar_count> scalars;
  for (std::size_t k = 0; k < scalars.size(); ++k) {
    scalars[k] = static_cast<compute_type>(prepared[k]);
  }
  const device_array<zero::kernels::control_block> device_control({&control, 1}, stream);
  const device_array<compute_type> device_scalars(scalars, stream);

  const device_copy parameters(states.parameters, stream);
  const device_copy masters(states.masters, stream);
  const device_copy gradients(states.gradients, stream);
  std::vector<device_copy<typename P::moment_type>> moments;
  for (auto& moment : states.moments) moments.emplace_back(moment, stream);

  zero::kernels::update_operands<O, P, G> operands;
  operands.parameters = parameters.data();
  if constexpr (zero::has_master<P>) operands.masters = masters.data();
  for (std::size_t k = 0; k < moments.size(); ++k) operands.moments[k] = moments[k].data();
  operands.gradients = gradients.data();
  operands.count = states.gradients.size();
  zero::kernels::update(zero::cuda_space{}, operands, device_control.data(), device_scalars.data(),
                        stream.get());

  parameters.copy_back();
  masters.copy_back();
  gradients.copy_back();
  for (const auto& moment : moments) moment.copy_back();
}

template <class O, class P, class G>
void require_host_bits(std::uint64_t count, std::size_t misaligned,
                       const zero::unique_cuda_stream& stream) {
  device_states<O, P, G> expected(count, misaligned);
  auto actual = expected;
  const auto scalars = O{}.prepare(step, arguments);
  zero::kernels::update(zero::host_space{}, expected.operands(), scalars, gradient_scale);
  update_on_device(actual, stream);
  const std::string difference = actual.difference(expected);
  if (!difference.empty()) {
    FAIL(O::name << ' ' << P::name << ", " << count << " elements of "
                 << zero::element_traits<G>::name << ", array " << misaligned
                 << " misaligned: " << difference);
  }
}

}  // namespace

TEST_CASE("gpu update: every policy gives the host's bits at every size") {
  const zero::unique_cuda_stream stream;
  const std::vector<std::uint64_t> counts = sizes();
  for_each_combination([&]<class O, class P, class G>() {
    for (const std::uint64_t count : counts) {
      require_host_bits<O, P, G>(count, device_states<O, P, G>::none, stream);
    }
  });
}

TEST_CASE("gpu update: one array that is not aligned changes nothing but the path") {
  const zero::unique_cuda_stream stream;
  for_each_combination([&]<class O, class P, class G>() {
    for (std::size_t misaligned = 0; misaligned < 3 + O::moments_per_element; ++misaligned) {
      for (const std::uint64_t count : {1U, 8U, 67U, 1003U}) {
        require_host_bits<O, P, G>(count, misaligned, stream);
      }
    }
  });
}

TEST_CASE("gpu update: a skipped step changes no byte") {
  const zero::unique_cuda_stream stream;
  for_each_combination([&]<class O, class P, class G>() {
    device_states<O, P, G> states(1003, device_states<O, P, G>::none);
    const auto before = states;
    update_on_device(states, stream, true);
    CHECK(states.difference(before) == "");
  });
}
