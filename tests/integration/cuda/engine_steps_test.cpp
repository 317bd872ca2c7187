// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 120
// links: zero_simulated_device zero_test_engines
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <zero/estimate.hpp>

#include "integration/cuda/cuda_training.hpp"

using namespace zero;
using namespace zero::test;

// What a step on a device says to the host, and when.

namespace {

template <class S, class P>
using device_engine = cuda_typed_engine<engine<S, P, cuda_threads_communicator, adamw>>;

training_options one_step(float gradient) {
  return {.steps = 1, .gradient = [gradient](const gradient_site&) { return gradient; }};
}

/// Runs `function(engine, rank, queue)` on every rank of a new machine; how each ended, and what
/// was found.
template <class S, class P, class Function>
std::vector<std::string> on_engines(int ranks, Function function,
                                    const engine_options& settings = test_settings()) {
  std::vector<std::string> texts;
  const simulated_device device(machine_of(7));
  const auto errors = on_cuda_threads(ranks, [&](cuda_threads_communicator& comm, cuda_queue q) {
    device_engine<S, P> engine(comm, device_layout(), adamw{}, settings, q);
    engine.initialize(initial_values);
    function(engine, comm.rank(), q);
  });
  for (const rank_error& error : errors) texts.push_back(error.text);
  for (const std::string& finding : device.findings()) texts.push_back("found " + finding);
  std::erase(texts, "");
  return texts;
}

using texts = std::vector<std::string>;

void require(bool condition, const std::string& what) {
  if (!condition) throw error("not so: " + what);
}

}  // namespace

TEST_CASE("the loss scale lies on the device, and one rank's overflow skips the step of all") {
  const auto check = [](auto& engine, int rank, cuda_queue q) {
    const std::vector<float> before = engine.export_tensor({0});
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const auto skipped = engine.run_steps_ahead(rank, one_step(rank == 1 ? infinity : 1.0F))[0];
    require(skipped.skipped && skipped.step == 0 && skipped.skipped_steps == 1, "it was skipped");
    require(skipped.loss_scale == 256.0, "the scale in force");
    require(engine.export_tensor({0}) == before, "nothing has changed");
    require(engine.loss_scale() == 128.0, "the scale was halved");
    const auto taken = engine.run_steps_ahead(rank, one_step(1.0F))[0];
    require(!taken.skipped && taken.step == 1 && taken.loss_scale == 128.0, "it was taken");
    require(engine.steps() == 1 && engine.skipped_steps() == 1, "counts");
    require(engine.typed().latest_report(q).step == 1, "the latest report");
  };
  CHECK(on_engines<stage2, fp16_mixed>(2, check) == texts{});
}

TEST_CASE("a pass gives kernels the address of the scale that its step unscales with") {
  const auto check = [](auto& engine, int, cuda_queue q) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::vector<double> scales;
    for (const float gradient : {1.0F, infinity, 1.0F}) {
      double scale = 0;
      {
        auto pass = engine.typed().train();
        zero::detail::cuda_try(cudaMemcpyAsync(&scale, pass.loss_scale(), sizeof(scale),
                                               cudaMemcpyDeviceToHost, q.stream()),
                               "cudaMemcpyAsync");
        const auto& layout = engine.layout();
        const auto uses = layout.uses();
        for (const unit_id unit : uses) pass.forward(unit, q).finish();
        for (auto unit = uses.rbegin(); unit != uses.rend(); ++unit) {
          const auto scope = pass.backward(*unit, q);
          for (const tensor_id tensor : layout.tensors(*unit)) {
            const tensor_info info = layout.info(tensor);
            if (!info.trainable) continue;
            const std::vector<float> values(info.elements, gradient);
            scope.add(tensor, range<const float, partial, cuda_space>(engine.values().send(values),
                                                                      values.size()));
          }
        }
        pass.end();
      }
      scales.push_back(scale);
      engine.step({.lr = 0.01});
    }
    require(scales == std::vector<double>{256.0, 256.0, 128.0}, "256, 256, 128");
  };
  CHECK(on_engines<stage1, fp16_mixed>(2, check) == texts{});
}

TEST_CASE("ranks that want different steps are told by the ticket, and nothing has changed") {
  const auto check = [](auto& engine, int rank, cuda_queue q) {
    const std::vector<float> before = engine.export_tensor({0});
    run_micro_batch(engine, rank, one_step(1.0F), {}, 0);
    const auto ticket = engine.typed().step({.lr = 0.01 + 0.01 * rank}, q);
    const rank_error error = error_of([&] { ticket.get(); });
    require(error.kind == outcome::mismatch && error.says("different arguments"), error.text);
    const rank_error latest = error_of([&] { engine.typed().latest_report(q); });
    require(latest.kind == outcome::mismatch, latest.text);
    require(engine.export_tensor({0}) == before && engine.steps() == 0, "nothing has changed");
    // Nothing is lost: the next step with equal arguments is taken.
    require(engine.run_steps_ahead(rank, one_step(1.0F))[0].step == 1, "the next one");
  };
  CHECK(on_engines<stage3, bf16_mixed>(3, check) == texts{});
}

TEST_CASE("a ticket can be asked until sixteen more steps were enqueued") {
  const auto check = [](auto& engine, int rank, cuda_queue q) {
    std::vector<typename std::decay_t<decltype(engine.typed())>::ticket> tickets;
    for (std::uint64_t step = 0; step < 17; ++step) {
      run_micro_batch(engine, rank, one_step(1.0F), {}, step);
      tickets.push_back(engine.typed().step({.lr = 0.01}, q));
    }
    require(tickets[16].get().step == 17 && tickets[1].get().step == 2, "steps of tickets");
    const rank_error error = error_of([&] { tickets[0].get(); });
    require(error.kind == outcome::usage && error.says("16 or more steps later"), error.text);
  };
  CHECK(on_engines<stage1, bf16_mixed>(1, check) == texts{});
}

TEST_CASE("a step in two parts is the step") {
  std::vector<float> values[2];
  for (const bool in_two : {false, true}) {
    const auto run = [&](auto& engine, int rank, cuda_queue q) {
      for (std::uint64_t step = 0; step < 3; ++step) {
        if (in_two) engine.typed().prepare_step({.lr = 0.01, .clip = 0.5}, q);
        run_micro_batch(engine, rank, one_step(1.0F), {}, step);
        if (in_two) {
          engine.typed().step_prepared(q);
        } else {
          engine.typed().step({.lr = 0.01, .clip = 0.5}, q);
        }
      }
      const auto exported = engine.export_tensor({0});
      if (rank == 0) values[in_two ? 1 : 0] = exported;
    };
    CHECK(on_engines<stage2, bf16_mixed>(2, run) == texts{});
  }
  CHECK(values[0] == values[1]);
}

TEST_CASE("a step for another number of micro-batches than prepared is refused") {
  const auto check = [](auto& engine, int rank, cuda_queue q) {
    const rank_error early = error_of([&] { engine.typed().step_prepared(q); });
    require(early.kind == outcome::usage, early.text);
    engine.typed().prepare_step({.lr = 0.01}, q);
    for (std::uint64_t m = 0; m < 2; ++m) {
      run_micro_batch(engine, rank, one_step(1.0F), {m, 2}, 0);
    }
    const rank_error error = error_of([&] { engine.typed().step_prepared(q); });
    require(error.kind == outcome::usage && error.says("prepared for 1 micro-batches and has 2"),
            error.text);
  };
  CHECK(on_engines<stage2, bf16_mixed>(1, check, test_settings(accumulation::reduce_every)) ==
        texts{});
}

TEST_CASE("calls in different streams are ordered by the engine") {
  // Forward, backward, its second stream and step in streams of their own, and nothing waits for
  // the device: the bits of one stream.
  const model_layout layout = device_layout();
  const training_options options{.steps = 4, .arguments = {.lr = 0.01}, .gradient = real_gradient};
  const trained_state expected = train(
      {.stage = stage_kind::stage3, .precision = precision_kind::bf16_mixed}, 2, layout, options);
  std::string first;
  for (std::uint64_t seed = 0; seed < 30 && first.empty(); ++seed) {
    const simulated_device device(machine_of(seed));
    device_run run;
    run.states.resize(2);
    run.errors = on_cuda_threads(2, [&](cuda_threads_communicator& comm, cuda_queue q) {
      const unique_cuda_stream backward;
      const unique_cuda_stream second;
      const unique_cuda_stream step_stream;
      device_engine<stage3, bf16_mixed> adapter(comm, layout, adamw{}, test_settings(), q);
      cuda_values values_of_second(second.get());
      adapter.initialize(initial_values);
      auto& engine = adapter.typed();
      std::vector<typename std::decay_t<decltype(engine)>::ticket> tickets;
      for (std::uint64_t step = 0; step < options.steps; ++step) {
        auto pass = engine.train();
        const auto uses = layout.uses();
        for (const unit_id unit : uses) pass.forward(unit, q).finish();
        for (auto unit = uses.rbegin(); unit != uses.rend(); ++unit) {
          auto scope = pass.backward(*unit, backward);
          scope.also_on(second);
          for (const tensor_id tensor : layout.tensors(*unit)) {
            const tensor_info info = layout.info(tensor);
            if (!info.trainable) continue;
            std::vector<float> values(info.elements);
            for (std::uint64_t i = 0; i < values.size(); ++i) {
              values[i] = options.gradient({comm.rank(), step, 0, info.key, i});
            }
            const float* const there = values_of_second.send(values);
            if (layout.tied_units(*unit).empty() && info.name != "table") {
              const auto gradient = scope.gradients(tensor, overwrite);
              kernels::convert(cuda_space{}, there, gradient.data(), gradient.size(), second.get());
            } else {
              // Zero-filled, or added to, in the scope's stream.
              unique_cuda_event sent;
              sent.record(second);
              sent.hold(backward);
              scope.add(tensor, range<const float, partial, cuda_space>(there, values.size()));
            }
          }
        }
        pass.end();
        tickets.push_back(engine.step(options.arguments, step_stream));
      }
      std::vector<step_report> reports;
      for (const auto& ticket : tickets) reports.push_back(ticket.get());
      run.states[static_cast<std::size_t>(comm.rank())] = state_of(adapter, reports);
    });
    first = run.difference_from(expected);
    for (const std::string& finding : device.findings()) first += "; found " + finding;
  }
  CHECK(first == "");
}

TEST_CASE("a scope takes one more stream, not two") {
  const auto check = [](auto& engine, int, cuda_queue q) {
    const unique_cuda_stream second;
    auto pass = engine.typed().train();
    auto scope = pass.forward({0}, q);
    scope.also_on(second);
    const rank_error error = error_of([&] { scope.also_on(q); });
    require(error.kind == outcome::usage && error.says("one more queue"), error.text);
  };
  const texts ends = on_engines<stage2, bf16_mixed>(1, check);
  CHECK(ends.size() <= 1);  // the pass was left without its backward
}

TEST_CASE("what is held on a device is what plan and estimate say") {
  const auto check = [](auto& engine, int rank, cuda_queue) {
    const auto& held = engine.ledger().held;
    require(held == engine.plan().held, "the plan's lines");
    require(held == rank_estimate(engine.layout(), engine.plan().request).held(), "the estimate");
    const std::uint64_t groups = engine.layout().group_count();
    // Block, request with groups, scalars, message, sum, and the sums of chunks, each from a
    // multiple of 64 on.
    const auto round = [](std::uint64_t bytes) { return (bytes + 63) / 64 * 64; };
    std::uint64_t longest = 0;
    for (const auto& unit : engine.plan().units) {
      longest = std::max(longest, unit.trainable.shard_elements);
    }
    const std::uint64_t chunks = longest > 1024 ? (longest + 1023) / 1024 : 0;
    const std::uint64_t expected =
        round(sizeof(kernels::control_block)) +
        round(sizeof(kernels::step_request) + groups * sizeof(update_arguments)) +
        round(groups * adamw::scalar_count * sizeof(float)) + 64 + 64 + round(chunks * 8);
    require(engine.plan().request.control_bytes == expected,
            std::to_string(engine.plan().request.control_bytes) + " control bytes, expected " +
                std::to_string(expected));
    engine.run_steps_ahead(rank, one_step(1.0F));
    require(engine.ledger().step == rank_estimate(engine.layout(), engine.plan().request).moved(),
            "what was moved");
  };
  CHECK(on_engines<stage0, bf16_mixed>(3, check) == texts{});
  CHECK(on_engines<stage3, bf16_mixed>(3, check) == texts{});
}

TEST_CASE("values go in and out of device memory as they do on the host") {
  const auto check = [](auto& engine, int rank, cuda_queue) {
    const tensor_info info = engine.layout().info({1});
    std::vector<float> values(info.elements);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25F * static_cast<float>(i % 97);
    engine.import_tensor({1}, rank == 1 ? values : std::vector<float>{}, from_rank{1});
    require(engine.export_tensor({1}) == values, "from rank 1");
    for (float& value : values) value += 1;
    engine.import_tensor({1}, values, same_on_all_ranks);
    require(engine.export_tensor({1}) == values, "the same on all ranks");
    std::uint64_t seen = 0;
    bool is_right = true;
    engine.for_each_owned(owned_state::masters, [&](const tensor_info& tensor, std::uint64_t first,
                                                    std::span<const float> part) {
      if (tensor.id.value != 1) return;
      seen += part.size();
      for (std::size_t i = 0; i < part.size(); ++i) is_right &= part[i] == values[first + i];
    });
    require(is_right && seen > 0, "masters");
    values[0] += static_cast<float>(rank);
    const rank_error error =
        error_of([&] { engine.import_tensor({1}, values, same_on_all_ranks); });
    require(error.kind == outcome::mismatch, error.text);
  };
  CHECK(on_engines<stage3, bf16_mixed>(2, check) == texts{});
  CHECK(on_engines<stage0, bf16_mixed>(2, check) == texts{});
}
