// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <zero/zero.hpp>

#include "support/allocation_counter.hpp"
#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;

// Building and initialising an engine takes the planned bytes and little more: at no time a second
// copy of the model. All bytes ever asked for are counted, which is at least the peak.

namespace {

template <class S>
void check_peak() {
  constexpr std::uint64_t unit_elements = 1 << 18;
  const auto totals = run_threads(3, [](threads_communicator& communicator) {
    model_layout layout;
    for (std::uint32_t u = 0; u < 6; ++u) {
      layout.add_tensor(layout.add_unit("unit" + std::to_string(u)), "t" + std::to_string(u),
                        {unit_elements});
    }
    const std::uint64_t before = allocated_bytes_of_this_thread();
    engine<S, bf16_mixed, threads_communicator, adamw> engine(communicator, layout, adamw{});
    engine.initialize([](const tensor_info&, std::uint64_t, std::span<float> values) {
      for (float& value : values) value = 0.01F;
    });
    return std::pair(allocated_bytes_of_this_thread() - before, engine.plan().arena_bytes);
  });
  for (const auto& [total, planned] : totals) {
    CAPTURE(S::name, total, planned);
    CHECK(total >= planned);
    CHECK(total <= planned + unit_elements * sizeof(bfloat16));
  }
}

}  // namespace

TEST_CASE("construction and initialisation hold the planned bytes plus less than a unit") {
  check_peak<stage0>();
  check_peak<stage1>();
  check_peak<stage2>();
  check_peak<stage3>();
}
