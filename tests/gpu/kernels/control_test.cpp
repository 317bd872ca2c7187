// SPDX-License-Identifier: Apache-2.0
// timeout: 300
// links: zero_gpu_listener zero_gpu_kernels
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/kernels/control.hpp>
#include <zero/kernels/instantiate.hpp>
#include <zero/numeric/scalar_ops.hpp>

#include "gpu/device_array.hpp"
#include "gpu/selection.hpp"

namespace {

using namespace gpu_tests;
using kernel_tests::sequence;
using zero::kernels::control_block;
using zero::kernels::step_request;
using message = std::array<double, zero::kernels::step_message_elements>;

/// What one step of one rank reads.
struct step_inputs {
  step_request request;
  std::vector<zero::update_arguments> groups;
  double squares = 0;
  bool is_counted = true;
};

step_inputs random_inputs(sequence& random) {
  step_inputs inputs;
  inputs.request.divisor = 1 + random.bits() % 7;
  inputs.request.multiplier = 1 + random.bits() % 3;
  inputs.request.clip = random.bits() % 2 == 0 ? 0.0 : 0.25 * (random.bits() % 8);
  inputs.request.arguments_hash = random.bits();
  for (std::uint32_t g = 0; g < 3; ++g) {
    inputs.groups.push_back({0.001 * (random.bits() % 100), 0.01 * (random.bits() % 10)});
  }
  inputs.is_counted = random.bits() % 4 != 0;
  inputs.squares = random.bits() % 8 == 0 ? std::numeric_limits<double>::infinity()
                                          : std::ldexp(1.0 + random.bits(), -20);
  return inputs;
}

/// A rank's control block and scalars, stepped by the functions of the host.
template <class O, class P>
struct host_rank {
  control_block control;
  std::vector<typename P::compute_type> scalars;
  message sums = {};

  void step(const step_inputs& inputs, int ranks) {
    zero::kernels::write_step_message<zero::scalar_ops<double>>(
        control, inputs.request, inputs.squares, inputs.is_counted, sums.data());
    zero::kernels::advance<zero::scalar_ops<double>, P>(
        O{}, zero::kernels::advance_operands<typename P::compute_type>{
                 &control, &inputs.request, sums.data(), inputs.groups.data(),
                 static_cast<std::uint32_t>(inputs.groups.size()), ranks, scalars.data()});
  }
};

/// The same by the kernels.
template <class O, class P>
class device_rank {
 public:
  device_rank(const control_block& control, std::size_t groups,
              const zero::unique_cuda_stream& stream)
      : stream_(stream.get()),
        control_({&control, 1}, stream),
        request_(1, stream),
        groups_(groups, stream),
        squares_(1, stream),
        sums_(zero::kernels::step_message_elements, stream),
        scalars_(groups * O::scalar_count, stream) {
    scalars_.fill_bytes(0);
  }

  void step(const step_inputs& inputs, int ranks) {
    request_.write(0, {&inputs.request, 1});
    groups_.write(0, inputs.groups);
    squares_.write(0, {&inputs.squares, 1});
    zero::kernels::write_step_message<O, P>(zero::cuda_space{}, control_.data(), request_.data(),
                                            squares_.data(), inputs.is_counted, sums_.data(),
                                            stream_);
    zero::kernels::advance<P>(zero::cuda_space{}, O{},
                              {control_.data(), request_.data(), sums_.data(), groups_.data(),
                               static_cast<std::uint32_t>(groups_.size()), ranks, scalars_.data()},
                              stream_);
  }
  host_rank<O, P> read() const {
    host_rank<O, P> result{
        control_.read_one(), std::vector<typename P::compute_type>(scalars_.size()), {}};
    scalars_.read(0, result.scalars);
    sums_.read(0, result.sums);
    return result;
  }

 private:
  cudaStream_t stream_;
  device_array<control_block> control_;
  device_array<step_request> request_;
  device_array<zero::update_arguments> groups_;
  device_array<double> squares_;
  device_array<double> sums_;
  device_array<typename P::compute_type> scalars_;
};

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0 || (std::isnan(a) && std::isnan(b));
}

/// The fields of both blocks that differ. Field by field, for the bytes between them say nothing.
std::string difference(const control_block& a, const control_block& b) {
  std::string text;
  const auto compare = [&](const char* name, auto x, auto y) {
    if (!same_bits(static_cast<double>(x), static_cast<double>(y)))
      text += std::string(name) + "; ";
  };
  compare("gradient_scale", a.gradient_scale, b.gradient_scale);
  compare("found_inf", a.found_inf, b.found_inf);
  compare("arguments_differ", a.arguments_differ, b.arguments_differ);
  compare("grad_norm", a.grad_norm, b.grad_norm);
  compare("step_loss_scale", a.step_loss_scale, b.step_loss_scale);
  compare("steps", a.steps, b.steps);
  compare("skipped_steps", a.skipped_steps, b.skipped_steps);
  compare("loss_scale", a.loss_scale, b.loss_scale);
  compare("finite_steps", a.finite_steps, b.finite_steps);
  compare("overflows_at_minimum", a.overflows_at_minimum, b.overflows_at_minimum);
  return text;
}

template <class O, class P>
std::string difference(const host_rank<O, P>& a, const host_rank<O, P>& b) {
  std::string text = difference(a.control, b.control);
  for (std::size_t i = 0; i < a.sums.size(); ++i) {
    if (!same_bits(a.sums[i], b.sums[i])) text += "message " + std::to_string(i) + "; ";
  }
  for (std::size_t k = 0; k < a.scalars.size(); ++k) {
    if (!same_bits(a.scalars[k], b.scalars[k])) text += "scalar " + std::to_string(k) + "; ";
  }
  return text;
}

}  // namespace

TEST_CASE("gpu control: steps decide as the host's functions do, bit for bit") {
  const zero::unique_cuda_stream stream;
  for_each_policy([&]<class O, class P>() {
    const std::uint64_t seed = 1 + O::scalar_count;
    sequence random(seed);
    control_block start = zero::kernels::initial_control({});
    start.scaling.window = 5;
    constexpr std::size_t groups = 3;
    host_rank<O, P> expected{
        start, std::vector<typename P::compute_type>(groups * O::scalar_count), {}};
    device_rank<O, P> device(start, groups, stream);
    for (int i = 0; i < 60; ++i) {
      // One in ten: this rank's message alone is not what two ranks would have summed.
      const int ranks = random.bits() % 10 == 0 ? 2 : 1;
      const step_inputs inputs = random_inputs(random);
      expected.step(inputs, ranks);
      device.step(inputs, ranks);
      const std::string text = difference(device.read(), expected);
      if (!text.empty()) {
        FAIL(O::name << ' ' << P::name << ", seed " << seed << ", step " << i << ": " << text);
      }
    }
    CHECK(expected.control.steps > 0);
    CHECK(expected.control.skipped_steps > 0);
  });
}
