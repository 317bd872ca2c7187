// SPDX-License-Identifier: Apache-2.0
// expect: zero::thrust_update: the optimizer's update takes std::array
#include <zero/adapters/thrust.hpp>

#include <array>
#include <cstdint>
#include <string_view>

struct host_optimizer {
  static constexpr std::string_view name = "host_optimizer";
  static constexpr std::size_t moments_per_element = 1;
  static constexpr std::size_t scalar_count = 1;
  double weight_decay = 0;

  std::array<double, 1> prepare(std::uint64_t, const zero::update_arguments&) const;
  template <class Ops, class V>
  static void update(V&, std::array<V, 1>&, const V&, const std::array<V, 1>&) {}
};

void use(const zero::kernels::update_operands<host_optimizer, zero::fp32, float>& operands) {
  zero::thrust_update(thrust::cuda::tag(), operands, {0.5}, 1.0F);
}
