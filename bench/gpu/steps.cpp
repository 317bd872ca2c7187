// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <zero/backends/cuda_threads.hpp>
#include <zero/backends/threads.hpp>
#include <zero/cuda.hpp>

#include "report.hpp"

namespace gpu_bench {
namespace {

constexpr std::uint32_t units = 4;
constexpr int warm_up_steps = 2;
constexpr int timed_steps = 5;

zero::model_layout make_layout(std::uint64_t psi) {
  zero::model_layout layout({.alignment_bytes = 256});
  for (std::uint32_t u = 0; u < units; ++u) {
    const std::string name = "unit" + std::to_string(u);
    layout.add_tensor(layout.add_unit(name), name, {psi / units});
  }
  return layout;
}

/// Forward opens the units, backward fills their gradients with a constant.
template <class Engine>
void enqueue_step(Engine& engine, zero::cuda_queue q) {
  const zero::model_layout& layout = engine.layout();
  auto pass = engine.train();
  for (std::uint32_t u = 0; u < units; ++u) pass.forward(zero::unit_id{u}, q).finish();
  for (std::uint32_t u = units; u-- > 0;) {
    auto unit = pass.backward(zero::unit_id{u}, q);
    const auto gradients = unit.gradients(layout.tensors(zero::unit_id{u})[0], zero::overwrite);
    constexpr int small_number = 0x3C;  // as bytes of a bfloat16: about 0.01
    zero::detail::cuda_try(
        cudaMemsetAsync(gradients.data(), small_number,
                        gradients.size() * sizeof(typename Engine::gradient_type), q.stream()),
        "cudaMemsetAsync");
  }
  pass.end();
  engine.step({.lr = 1e-3}, q);
}

/// Seconds per step of one rank.
template <class S>
double train(zero::cuda_threads_communicator& comm, const zero::model_layout& layout) {
  const zero::unique_cuda_stream stream;
  zero::engine<S, zero::bf16_mixed, zero::cuda_threads_communicator, zero::adamw> engine(
      comm, layout, zero::adamw{}, {}, stream);
  engine.initialize([](const zero::tensor_info&, std::uint64_t,
                       std::span<float> values) { std::fill(values.begin(), values.end(), 1.0F); },
                    stream);
  for (int step = 0; step < warm_up_steps; ++step) enqueue_step(engine, stream);
  stream.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < timed_steps; ++step) enqueue_step(engine, stream);
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
         timed_steps;
}

template <class S>
void add_stage(std::uint64_t psi, std::vector<step_row>& rows) {
  const zero::model_layout layout = make_layout(psi);
  for (const int ranks : {1, 4}) {
    const zero::cuda_threads_world world(ranks,
                                         {.timeout = std::chrono::seconds(60), .devices = {0}});
    const auto seconds = zero::run_threads(
        ranks, {.timeout = std::chrono::seconds(120)}, [&](zero::threads_communicator& thread) {
          zero::cuda_threads_communicator comm(world, thread.rank());
          return train<S>(comm, layout);
        });
    rows.push_back(
        {std::string(S::name), ranks, psi, *std::max_element(seconds.begin(), seconds.end())});
  }
}

}  // namespace

std::vector<step_row> measure_steps(std::uint64_t psi) {
  std::vector<step_row> rows;
#if defined(ZERO_TEST_GPU_ALL)
  add_stage<zero::stage0>(psi, rows);
  add_stage<zero::stage1>(psi, rows);
#endif
  add_stage<zero::stage2>(psi, rows);
#if defined(ZERO_TEST_GPU_ALL)
  add_stage<zero::stage3>(psi, rows);
#endif
  return rows;
}

}  // namespace gpu_bench
