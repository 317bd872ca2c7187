// SPDX-License-Identifier: Apache-2.0
// The program of 01_quickstart.cpp with ranks that are processes of one host, at stage 3. Alone it
// is a world of one rank; a launcher makes it one of several:
//   mpirun -n 3 ./10_processes      zero-run -n 3 ./10_processes      srun, torchrun --no-python

#include <zero/backends/shm.hpp>
#include <zero/rendezvous/open_store.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

namespace {

constexpr std::size_t inputs = 8;
constexpr int samples = 3200;  // over all ranks

float input(int sample, std::size_t i) {
  return std::sin(static_cast<float>(sample) * (1.3F + static_cast<float>(i)));
}

/// The largest distance of a weight from 2, which is what the samples say they are.
float train(zero::shm_communicator& ranks) {
  zero::model_layout layout;
  const auto unit = layout.add_unit("linear");
  const auto weights = layout.add_tensor(unit, "weights", {inputs});

  // Collectives copy through windows what lies in private memory; from here peers read in place.
  using engine_type = zero::engine<zero::stage3, zero::fp32, zero::shm_communicator, zero::adamw>;
  const zero::shm_memory arena =
      ranks.shared_memory(engine_type::required_bytes(layout, ranks.size()));
  engine_type engine(ranks, layout, zero::adamw{.weight_decay = 0}, {.arena = arena.bytes()});
  engine.initialize([](const zero::tensor_info&, std::uint64_t, std::span<float> values) {
    for (float& value : values) value = 0;
  });

  for (int first = 0; first + ranks.size() <= samples; first += ranks.size()) {
    const int sample = first + ranks.rank();
    auto pass = engine.train();
    float error = 0;
    {
      auto opened = pass.forward(unit);
      const auto w = opened.parameters(weights);
      for (std::size_t i = 0; i < inputs; ++i) error += (w[i] - 2) * input(sample, i);
    }
    {
      auto opened = pass.backward(unit);
      const auto gradient = opened.gradients(weights);
      for (std::size_t i = 0; i < inputs; ++i) gradient[i] += 2 * error * input(sample, i);
    }
    pass.end();
    engine.step({.lr = 0.03});
  }

  std::vector<float> values(inputs);
  engine.export_tensor(weights, values);  // every rank takes part, and has them all afterwards
  float distance = 0;
  for (const float value : values) distance = std::max(distance, std::abs(value - 2));
  return distance;
}

/// A rank that fails tells the others why, before its end tells them only that it left.
float train_or_abort(zero::shm_communicator& ranks) {
  try {
    return train(ranks);
  } catch (const std::exception& failure) {
    ranks.abort(failure.what());
    throw;
  }
}

int run() {
  const zero::launch_environment launch = zero::from_environment();
  // Outlives the communicator, so that rank 0 serves the others until they have met.
  zero::any_store store = zero::open_store(launch, {.timeout = std::chrono::seconds(30)});

  if (!zero::shm_host_is_shared(store, launch.rank, launch.size,
                                zero::deadline_in(std::chrono::seconds(30)))) {
    if (launch.rank == 0) {
      std::fprintf(stderr,
                   "the %d ranks cannot share memory; between hosts or containers use "
                   "zero::gloo_communicator(store, rank, size) from <zero/backends/gloo.hpp>, "
                   "target zero::gloo\n",
                   launch.size);
    }
    return 1;
  }

  zero::shm_communicator ranks(store, launch.rank, launch.size,
                               {.timeout = std::chrono::seconds(30)});
  const float distance = train_or_abort(ranks);
  if (ranks.rank() == 0) {
    std::printf("%d rank(s), launcher %s: weights are 2 to within %.0e\n", ranks.size(),
                launch.launcher.c_str(), static_cast<double>(distance));
  }
  return distance < 1e-3F ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
