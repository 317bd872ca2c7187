// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank
#include <catch2/catch.hpp>

#include <zero/zero.hpp>

#include "support/training.hpp"

using namespace zero;
using namespace zero::test;

// bf16_remainder keeps two bytes less per element than bf16_mixed and loses nothing: a policy that
// stores the whole fp32 master, with the same rounding of the parameter, takes the same path.

namespace {

/// What bf16_remainder does, with the master stored in full.
struct ties_away_with_master : bf16_remainder {
  static constexpr std::string_view name = "ties_away_with_master";
  using master_storage = float;

  static constexpr float load(bfloat16, float master) noexcept { return master; }
  static constexpr void store(float value, bfloat16& parameter, float& master) noexcept {
    parameter = split_ties_away(value).high;
    master = value;
  }
};
static_assert(Precision<ties_away_with_master>);

struct trained {
  std::vector<std::uint16_t> parameters;
  std::vector<float> masters;
  std::uint64_t optimizer_bytes = 0;
};

template <class S, class P>
std::vector<trained> train_100_steps(int ranks) {
  return run_threads(ranks, long_timeout, [](threads_communicator& communicator) {
    model_layout layout;
    const unit_id unit = layout.add_unit("unit");
    const tensor_id tensor = layout.add_tensor(unit, "weights", {41, 7});
    engine<S, P, threads_communicator, adamw> engine(communicator, layout, adamw{});
    engine.initialize(initial_values);
    for (std::uint64_t step = 0; step < 100; ++step) {
      auto pass = engine.train();
      pass.forward(unit).parameters(tensor);
      {
        auto scope = pass.backward(unit);
        const auto gradients = scope.gradients(tensor, overwrite);
        for (std::uint64_t i = 0; i < gradients.size(); ++i) {
          gradients[i] = bfloat16{real_gradient({communicator.rank(), step, 0, 1, i})};
        }
        std::move(scope).finish();
      }
      pass.end();
      engine.step({.lr = 1e-3, .clip = 1.0});
    }
    trained result;
    std::vector<bfloat16> parameters(41 * 7);
    engine.export_parameters(tensor, parameters);
    for (const bfloat16 value : parameters) result.parameters.push_back(value.bits());
    result.masters.resize(parameters.size());
    engine.export_tensor(tensor, result.masters);
    result.optimizer_bytes = engine.ledger().held.optimizer;
    return result;
  });
}

template <class S>
void check_same_path(int ranks) {
  const auto with_remainder = train_100_steps<S, bf16_remainder>(ranks);
  const auto with_master = train_100_steps<S, ties_away_with_master>(ranks);
  for (std::size_t rank = 0; rank < with_master.size(); ++rank) {
    CAPTURE(S::name, ranks, rank);
    CHECK(with_remainder[rank].parameters == with_master[rank].parameters);
    CHECK(with_remainder[rank].masters == with_master[rank].masters);
    CHECK(with_remainder[rank].optimizer_bytes * 12 == with_master[rank].optimizer_bytes * 10);
  }
}

}  // namespace

TEST_CASE("bf16_remainder takes the same path as a stored fp32 master, with 10 bytes for 12") {
  check_same_path<stage0>(2);
  check_same_path<stage3>(3);
}
