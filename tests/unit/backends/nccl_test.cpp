// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <zero/backends/nccl.hpp>
#include <zero/backends/threads.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/numeric/float16.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "support/rank_runner.hpp"
#include "support/simulated_device/nccl_ranks.hpp"
#include "support/simulated_device/ordering.hpp"
#include "support/simulated_device/simulated_device.hpp"

using namespace zero;
using namespace zero::test;

namespace {

constexpr std::uint64_t seeds = 50;

bool goes_wrong(int size, collective operation) {
  auto memory = ordered_memory::for_ranks(size);
  std::vector<std::string> texts(memory.size());
  // A rank that sees a wrong result does not throw: the others would have to be stopped first.
  const auto errors = run_ranks(size, unwatched(), [&](nccl_communicator& comm) {
    texts[static_cast<std::size_t>(comm.rank())] = ordered_rounds(comm, operation, memory).run();
  });
  for (const rank_error& error : errors) texts.push_back(error.text);
  return std::any_of(texts.begin(), texts.end(), [](const auto& text) { return !text.empty(); });
}

}  // namespace

TEST_CASE("collectives of simulated NCCL in a stream are right under every seed") {
  int wrong = 0;
  std::set<std::uint64_t> orders;
  for (const int size : {1, 2, 3}) {
    for (const collective operation : ordered_operations) {
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        simulated_device device(machine_of(seed, size));
        wrong += goes_wrong(size, operation) || !device.findings().empty() ? 1 : 0;
        orders.insert(device.order());
      }
    }
  }
  WARN(orders.size() << " different orders, " << wrong << " wrong results");
  CHECK(wrong == 0);
  CHECK(orders.size() >= 100);
}

TEST_CASE("every wait around simulated NCCL matters: without it some seed goes wrong") {
  std::string harmless;
  int dropped = 0;
  for (const int size : {2, 3}) {
    for (const collective operation : ordered_operations) {
      std::uint64_t waits = 0;
      {
        simulated_device device(machine_of(0, size));
        goes_wrong(size, operation);
        waits = device.waits(0);
      }
      for (std::uint64_t k = 0; k < waits; ++k) {
        bool matters = false;
        for (std::uint64_t seed = 0; seed < 400 && !matters; ++seed) {
          simulated_device device(machine_of(seed, size));
          device.drop_wait(k, 0);
          matters = goes_wrong(size, operation);
        }
        ++dropped;
        if (matters) continue;
        harmless += "N = " + std::to_string(size) + ", " + std::string(name_of(operation)) +
                    ": wait " + std::to_string(k) + " of " + std::to_string(waits) + "\n";
      }
    }
  }
  WARN(dropped << " waits were taken away, one at a time");
  CHECK(harmless == "");
}

TEST_CASE("without a GPU the NCCL communicator says so in one line") {
  simulated_device device({.devices = 0});
  memory_store store;
  const rank_error error = error_of([&] { nccl_communicator(store, 0, 1); });
  CHECK(error.kind == outcome::error);
  CHECK(error.text ==
        "zero::nccl_communicator: no CUDA device: cudaGetDeviceCount: cudaErrorInsufficientDriver "
        "(35), CUDA driver version is insufficient for CUDA runtime version");
}

TEST_CASE("an NCCL that is too old is refused with both versions") {
  for (const auto& [version, text] : {std::pair{21605, "NCCL 2.16.5 is loaded, 2.18.1"},
                                      std::pair{2804, "NCCL 2.8.4 is loaded, 2.18.1"}}) {
    auto options = machine_of(0, 1);
    options.nccl_version = version;
    simulated_device device(options);
    memory_store store;
    CHECK_THROWS_WITH(nccl_communicator(store, 0, 1), Catch::Contains(text));
  }
}

TEST_CASE("two ranks on one device are refused with NCCL's words") {
  simulated_device device(machine_of(0, 1));
  memory_store store;
  const auto errors = outcomes(2, long_timeout, [&](threads_communicator& thread) {
    nccl_communicator(store, thread.rank(), 2, quick());
  });
  const bool first = errors[0].says("Duplicate GPU");
  const bool second = errors[1].says("Duplicate GPU");
  INFO(errors[0].text << "\n" << errors[1].text);
  CHECK((first && second));
}

TEST_CASE("ranks that compare their calls name operation, count, root and scale that differ") {
  nccl_options options = quick();
  options.checked_order = true;
  using body = void (*)(nccl_communicator&, double*, cuda_queue, bool);
  const std::pair<body, const char*> cases[] = {
      {[](nccl_communicator& comm, double* data, cuda_queue queue, bool is_odd) {
         const range<double, full, cuda_space> values(data, 4);
         if (is_odd) return comm.broadcast(values, 0, queue).wait(queue);
         comm.all_reduce(values, queue).wait(queue);
       },
       "rank 0 called all_reduce #0 of 4 x float64, rank 1 called broadcast #0 of 4 x float64"},
      {[](nccl_communicator& comm, double* data, cuda_queue queue, bool is_odd) {
         const std::uint64_t count = is_odd ? 3 : 4;
         comm.all_reduce(range<double, full, cuda_space>(data, count), queue).wait(queue);
       },
       "rank 0 called all_reduce #0 of 4 x float64, rank 1 called all_reduce #0 of 3 x float64"},
      {[](nccl_communicator& comm, double* data, cuda_queue queue, bool is_odd) {
         comm.broadcast(range<double, full, cuda_space>(data, 4), is_odd ? 1 : 0, queue)
             .wait(queue);
       },
       "from root 1"},
      {[](nccl_communicator& comm, double* data, cuda_queue queue, bool is_odd) {
         comm.reduce_scatter(range<const double, partial, cuda_space>(data, 6),
                             range<double, shard, cuda_space>(data + 8, 2),
                             {.scale = is_odd ? 0.5F : 1.0F}, queue)
             .wait(queue);
       },
       "rank 1 called reduce_scatter #0 of 6 x float64 x 0.5"},
  };
  for (const auto& [call, text] : cases) {
    simulated_device device(machine_of(0, 3));
    const auto errors = run_ranks(3, options, [call = call](nccl_communicator& comm) {
      const unique_cuda_stream stream;
      std::vector<double> data(16, 1.0);
      call(comm, data.data(), stream, comm.rank() == 1);
    });
    for (const rank_error& error : errors) {
      INFO(error.text);
      CHECK(error.kind == outcome::mismatch);
      CHECK(error.says(text));
      CHECK(error.where.peer == 1);
    }
    CHECK(device.findings().empty());  // nothing reached NCCL
  }
}

TEST_CASE("a mean of float16 does not overflow where the sum would") {
  simulated_device device(machine_of(0, 2));
  const auto errors = run_ranks(2, quick(), [](nccl_communicator& comm) {
    const unique_cuda_stream stream;
    std::vector<float16> in(4, float16(40000.0F));
    std::vector<float16> out(2);
    const auto reduce = [&](float scale) {
      comm.reduce_scatter(range<const float16, partial, cuda_space>(in.data(), 4),
                          range<float16, shard, cuda_space>(out.data(), 2), {.scale = scale},
                          stream)
          .wait(stream);
      comm.synchronize(stream);
      return static_cast<float>(out[1]);
    };
    if (reduce(0.5F) != 40000.0F) throw std::runtime_error("the mean is wrong");
    if (reduce(1.0F) < 65536.0F) throw std::runtime_error("the sum was expected to overflow");
  });
  for (const rank_error& error : errors) CHECK(error.text == "");
}

TEST_CASE(
    "a collective in a queue that is being captured asks for no event, and is not waited for") {
  simulated_device device(machine_of(0, 2));
  std::vector<double> sums(2);
  const auto errors = run_ranks(2, quick(), [&](nccl_communicator& comm) {
    const unique_cuda_stream stream;
    const unique_cuda_stream eager;
    const auto values = device_ones(1);
    comm.all_reduce(device_ones(1), eager).wait(eager);  // there is an event to ask for
    zero::detail::cuda_try(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                           "begin");
    { const auto dropped = comm.all_reduce(values, stream); }
    comm.all_reduce(values, stream).wait(stream);
    cudaGraph_t graph = nullptr;
    zero::detail::cuda_try(cudaStreamEndCapture(stream.get(), &graph), "end");
    cudaGraphExec_t launched = nullptr;
    zero::detail::cuda_try(cudaGraphInstantiate(&launched, graph, 0), "instantiate");
    for (int i = 0; i < 2; ++i) {
      zero::detail::cuda_try(cudaGraphLaunch(launched, stream.get()), "launch");
    }
    comm.synchronize(stream);
    sums[static_cast<std::size_t>(comm.rank())] = *values.data();
    cudaGraphExecDestroy(launched);
    cudaGraphDestroy(graph);
  });
  for (const rank_error& error : errors) CHECK(error.text == "");
  CHECK(sums == std::vector<double>{16.0, 16.0});
  CHECK(device.findings() == std::vector<std::string>{});
}

TEST_CASE("settings and ranks that cannot be are named with their values before peers are met") {
  simulated_device device(machine_of(0, 1));
  memory_store store;
  using Catch::Contains;
  CHECK_THROWS_WITH(nccl_communicator(store, 2, 2),
                    Contains("rank 2 does not exist in a world of 2"));
  CHECK_THROWS_WITH(nccl_communicator(store, 0, 1, {.timeout = std::chrono::seconds(-1)}),
                    Contains("timeout of -1000000000 ns is not positive"));
  CHECK_THROWS_WITH(nccl_communicator(store, 0, 1, {.min_blocks = 8, .max_blocks = 4}),
                    Contains("min_blocks 8 and max_blocks 4"));
  nccl_communicator alone(store, 0, 1, quick());
  CHECK_THROWS_WITH(alone.split(-1), Contains("the color -1 is below 0"));
}
