// SPDX-License-Identifier: Apache-2.0
// Three micro-batches per step, in the two ways there are: reduce_last holds full fp32 sums and
// moves the gradients once, reduce_every holds a shard of the sums and moves them every time.

#include <zero/zero.hpp>

#include <cstdio>
#include <vector>

namespace {

constexpr int ranks = 4;
constexpr std::uint64_t micro_batches = 3;
constexpr std::uint64_t size = 1000;
constexpr int layers = 2;

struct outcome {
  zero::ledger ledger;
  std::vector<float> parameters;
};

outcome train(zero::threads_communicator& threads, zero::accumulation mode) {
  zero::model_layout layout;
  std::vector<zero::unit_id> units;
  std::vector<zero::tensor_id> tensors;
  for (const char* name : {"a", "b"}) {
    units.push_back(layout.add_unit(name));
    tensors.push_back(layout.add_tensor(units.back(), name, {size}));
  }
  zero::engine<zero::stage2, zero::bf16_mixed, zero::threads_communicator, zero::adamw> engine(
      threads, layout, zero::adamw{}, {.accumulation = mode});
  engine.initialize([](const zero::tensor_info&, std::uint64_t first, std::span<float> values) {
    for (float& value : values) value = static_cast<float>(++first) / size;
  });

  for (int step = 0; step < 5; ++step) {
    for (std::uint64_t i = 0; i < micro_batches; ++i) {
      auto pass = engine.train({.micro_batch = i, .of = micro_batches});
      for (const zero::unit_id unit : units) pass.forward(unit).finish();
      for (std::size_t u = layers; u-- > 0;) {
        const auto opened = pass.backward(units[u]);
        // Small integers: their sums are exact in bf16, so that both modes must agree to the bit.
        const auto value =
            static_cast<float>((threads.rank() + static_cast<int>(i) + step) % 3 - 1);
        opened.add(tensors[u], std::vector<float>(size, value));
      }
      pass.end();
    }
    engine.step({.lr = 0.01});  // the mean over ranks and micro-batches
  }
  outcome result{engine.ledger(), {}};
  for (const zero::tensor_id tensor : tensors) {
    std::vector<float> values(size);
    engine.export_tensor(tensor, values);
    result.parameters.insert(result.parameters.end(), values.begin(), values.end());
  }
  return result;
}

/// The sum of a line of the ledger over all ranks.
std::uint64_t over_ranks(const std::vector<outcome>& results,
                         std::uint64_t zero::held_bytes::*line) {
  std::uint64_t sum = 0;
  for (const outcome& rank : results) sum += rank.ledger.held.*line;
  return sum;
}

std::vector<outcome> run(const char* name, zero::accumulation mode) {
  auto results = zero::run_threads(
      ranks, [mode](zero::threads_communicator& threads) { return train(threads, mode); });
  const zero::moved_elements& moved = results[0].ledger.step;
  std::printf(
      "%-13s gradients %6llu, accumulation %6llu bytes over all ranks; "
      "moved: reduce-scatter %llu, all-gather %llu elements\n",
      name, static_cast<unsigned long long>(over_ranks(results, &zero::held_bytes::gradients)),
      static_cast<unsigned long long>(over_ranks(results, &zero::held_bytes::accumulation)),
      static_cast<unsigned long long>(moved.reduce_scatter),
      static_cast<unsigned long long>(moved.all_gather));
  return results;
}

}  // namespace

int main() {
  const std::uint64_t psi = layers * size;
  const auto last = run("reduce_last", zero::accumulation::reduce_last);
  const auto every = run("reduce_every", zero::accumulation::reduce_every);

  bool passed = last[0].parameters == every[0].parameters;
  // reduce_last: every rank holds 4 Psi bytes of sums beside its shard of bf16 gradients.
  passed = passed && over_ranks(last, &zero::held_bytes::accumulation) == ranks * 4 * psi &&
           over_ranks(last, &zero::held_bytes::gradients) == 2 * psi;
  // reduce_every: the ranks share 4 Psi bytes of sums, which take the place of the gradients.
  passed = passed && over_ranks(every, &zero::held_bytes::accumulation) == 4 * psi &&
           over_ranks(every, &zero::held_bytes::gradients) == 0;
  // Psi or 3 Psi for the gradients, and Psi for the updated parameters.
  passed = passed && last[0].ledger.step.reduce_scatter == psi &&
           every[0].ledger.step.reduce_scatter == micro_batches * psi &&
           last[0].ledger.step.all_gather == psi && every[0].ledger.step.all_gather == psi;
  return passed ? 0 : 1;
}
