// SPDX-License-Identifier: Apache-2.0
// The backend is chosen when the program runs: 08_run_time_choice [self | threads] [RANKS].
// The engine sees one type, any_communicator, at the price of one virtual call per collective; bits
// and counts are those of the backend behind it. Without arguments both backends run and are
// compared.

#include <zero/adapters/any_communicator.hpp>
#include <zero/zero.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

constexpr std::uint64_t size = 257;  // prime: nothing divides it, and nothing has to

std::vector<float> train(zero::any_communicator& communicator) {
  zero::model_layout layout;
  const auto unit = layout.add_unit("layer");
  const auto tensor = layout.add_tensor(unit, "weight", {size});
  zero::engine<zero::stage1, zero::bf16_remainder, zero::any_communicator, zero::lion> engine(
      communicator, layout, zero::lion{});
  engine.initialize([](const zero::tensor_info&, std::uint64_t first, std::span<float> values) {
    for (float& value : values) value = static_cast<float>(++first) / size;
  });
  std::vector<float> gradient(size);
  for (int step = 0; step < 10; ++step) {
    for (std::size_t i = 0; i < size; ++i) {
      gradient[i] = static_cast<float>(static_cast<int>(i + 7) * (step + 1) % 11 - 5);
    }
    auto pass = engine.train();
    pass.forward(unit).finish();
    pass.backward(unit).add(tensor, gradient);
    pass.end();
    engine.step({.lr = 0.01});
  }
  std::vector<float> values(size);
  engine.export_tensor(tensor, values);
  if (communicator.rank() == 0) {
    std::printf("%s, %d rank(s): %llu elements moved in the last step\n",
                communicator.inner_name().data(), communicator.size(),
                static_cast<unsigned long long>(engine.ledger().step.total()));
  }
  return values;
}

std::vector<float> train_on(std::string_view backend, int ranks) {
  if (backend == "self") {
    zero::self_communicator self;
    zero::any_communicator any(self);
    return train(any);
  }
  const auto results = zero::run_threads(ranks, [](zero::threads_communicator& threads) {
    zero::any_communicator any(threads);
    return train(any);
  });
  return results.front();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const std::string_view backend = argv[1];
    const int ranks = argc > 2 ? std::atoi(argv[2]) : 1;
    if ((backend != "self" && backend != "threads") || ranks < 1) {
      std::fprintf(stderr, "usage: 08_run_time_choice [self | threads] [RANKS]\n");
      return 2;
    }
    train_on(backend, ranks);
    return 0;
  }
  const std::vector<float> alone = train_on("self", 1);
  const std::vector<float> threads = train_on("threads", 1);
  // All ranks add the same gradient, so that four of them take the mean of four equal values.
  const std::vector<float> four = train_on("threads", 4);
  return alone == threads && alone == four ? 0 : 1;
}
