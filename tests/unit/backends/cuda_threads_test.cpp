// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "unit/backends/cuda_threads_ranks.hpp"

using namespace zero;
using namespace zero::test;

namespace {

constexpr std::uint64_t seeds = 50;

void all_reduce_once(cuda_threads_communicator& comm, cuda_queue queue) {
  double value = 1;
  comm.all_reduce(range<double, full, cuda_space>(&value, 1), queue).wait(queue);
}

}  // namespace

TEST_CASE("collectives in a stream are right under every seed") {
  int wrong = 0;
  std::set<std::uint64_t> orders;
  for (const int size : {1, 2, 3, 4}) {
    for (const collective operation : ordered_operations) {
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        simulated_device device(machine_of(seed, size % 2 == 0 ? 1 : size));
        wrong += goes_wrong(size, operation) ? 1 : 0;
        orders.insert(device.order());
      }
    }
  }
  WARN(orders.size() << " different orders, " << wrong << " wrong results");
  CHECK(wrong == 0);
  CHECK(orders.size() >= 100);
}

TEST_CASE("an error of CUDA on one rank is one for all, with its place and text") {
  for (const std::string function :
       {"cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent", "cudaStreamIsCapturing"}) {
    for (std::uint64_t call = 0; call < 12; ++call) {
      simulated_device device(machine_of(call));
      device.fail(
          {.function = function, .call = call, .code = cudaErrorIllegalAddress, .host_thread = 1});
      // They outlive the ranks: an exception leaves earlier calls in the streams.
      std::vector<std::vector<double>> values(3, std::vector<double>(4, 1.0));
      const auto errors = run_ranks(3, {}, [&](cuda_threads_communicator& comm) {
        const unique_cuda_stream stream;
        auto& value = values[static_cast<std::size_t>(comm.rank())];
        for (int i = 0; i < 12; ++i) {
          comm.all_reduce(range<double, full, cuda_space>(value.data(), 4), stream).wait(stream);
        }
        stream.synchronize();
      });
      INFO(function << " call " << call << ": " << errors[1].text);
      CHECK(errors[1].kind == outcome::communicator);
      CHECK(errors[1].says("cudaErrorIllegalAddress (700)"));
      CHECK(errors[1].where.backend == "cuda_threads");
      CHECK(errors[1].where.rank == 1);
      CHECK(errors[1].where.operation == "all_reduce");
      for (const std::size_t peer : {0U, 2U}) {
        INFO(errors[peer].text);
        CHECK(errors[peer].kind == outcome::aborted);
        CHECK(errors[peer].says("cudaErrorIllegalAddress (700)"));
        CHECK(errors[peer].where.peer == 1);
      }
      CHECK(device.findings().empty());
    }
  }
}

TEST_CASE("a rank that cannot take its place ends the world for those that wait for it") {
  for (const std::string function : {"cudaMalloc", "cudaEventCreateWithFlags"}) {
    simulated_device device(machine_of(3));
    device.fail({.function = function, .code = cudaErrorMemoryAllocation, .host_thread = 1});
    const auto errors = run_ranks(3, {}, [](cuda_threads_communicator& comm) {
      const unique_cuda_stream stream;
      all_reduce_once(comm, stream);
    });
    CHECK(errors[1].kind == outcome::error);
    CHECK(errors[1].says(function + ": cudaErrorMemoryAllocation (2)"));
    for (const std::size_t peer : {0U, 2U}) {
      INFO(errors[peer].text);
      CHECK(errors[peer].kind == outcome::aborted);
      CHECK(errors[peer].where.peer == 1);
      CHECK(errors[peer].says("cudaErrorMemoryAllocation (2)"));
    }
  }
}

TEST_CASE("a queue that is being captured is refused, and the communicator stays usable") {
  simulated_device device(machine_of(1));
  const auto errors = run_ranks(2, {}, [&](cuda_threads_communicator& comm) {
    const unique_cuda_stream captured;
    const unique_cuda_stream stream;
    zero::detail::cuda_try(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeThreadLocal),
                           "begin");
    const rank_error error = error_of([&] { all_reduce_once(comm, captured); });
    cudaGraph_t graph = nullptr;
    zero::detail::cuda_try(cudaStreamEndCapture(captured.get(), &graph), "end");
    cudaGraphDestroy(graph);
    if (error.kind != outcome::usage || !error.says("captured into a graph")) {
      throw std::runtime_error("not refused: " + error.text);
    }
    std::vector<double> value(1, 1.0);
    comm.all_reduce(range<double, full, cuda_space>(value.data(), 1), stream).wait(stream);
    stream.synchronize();
    if (value[0] != 2) throw std::runtime_error("wrong sum");
  });
  for (const rank_error& error : errors) CHECK(error.text == "");
  CHECK(device.findings().empty());
}

TEST_CASE("handles may be dropped, and more of them be open than the ring has slots") {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    simulated_device device(machine_of(seed));
    const auto errors = run_ranks(3, {}, [](cuda_threads_communicator& comm) {
      const unique_cuda_stream stream;
      std::vector<double> values(200, 1.0);
      std::vector<cuda_threads_communicator::work> works;
      for (double& value : values) {
        works.push_back(comm.all_reduce(range<double, full, cuda_space>(&value, 1), stream));
      }
      works.front().wait(stream);
      works.front().wait(stream);
      works.clear();  // waits for those that were not waited for
      for (const double value : values) {
        if (value != 3) throw std::runtime_error("a dropped handle did not wait");
      }
      stream.synchronize();
    });
    for (const rank_error& error : errors) CHECK(error.text == "");
    CHECK(device.findings().empty());
  }
}

TEST_CASE("a caller too many is refused, and the world goes on") {
  const simulated_device device(machine_of(2));
  const cuda_threads_world world(2);
  const auto errors =
      outcomes(2, {.timeout = std::chrono::hours(1)}, [&](threads_communicator& thread) {
        cuda_threads_communicator comm(world, thread.rank());
        for (const int rank : {thread.rank(), 2}) {
          const rank_error error = error_of([&] { cuda_threads_communicator(world, rank); });
          if (error.kind != outcome::usage) throw std::runtime_error(error.text);
        }
        const unique_cuda_stream stream;
        std::vector<double> value(1, 1.0);
        comm.all_reduce(range<double, full, cuda_space>(value.data(), 1), stream).wait(stream);
        stream.synchronize();
        if (value[0] != 2) throw std::runtime_error("wrong sum");
      });
  for (const rank_error& error : errors) CHECK(error.text == "");
}

TEST_CASE("settings and ranks that cannot be are named with their values") {
  simulated_device device(machine_of(0));
  using Catch::Contains;
  CHECK_THROWS_WITH(cuda_threads_world(0), Contains("size 0 is not between 1 and 64"));
  CHECK_THROWS_WITH(cuda_threads_world(65), Contains("size 65"));
  CHECK_THROWS_WITH(cuda_threads_world(2, {.timeout = std::chrono::seconds(0)}),
                    Contains("timeout of 0 ns is not positive"));
  CHECK_THROWS_WITH(cuda_threads_world(3, {.devices = {0, 1}}), Contains("2 devices for 3 ranks"));
  const cuda_threads_world world(2);
  CHECK_THROWS_WITH(cuda_threads_communicator(world, 2), Contains("rank 2 does not exist"));
  const cuda_threads_communicator first(world, 0);
  CHECK_THROWS_WITH(cuda_threads_communicator(world, 0),
                    Contains("rank 0 of a world of 2 was taken"));
  const cuda_threads_world elsewhere(1, {.devices = {7}});
  CHECK_THROWS_AS(cuda_threads_communicator(elsewhere, 0), cuda_error);
}
