// SPDX-License-Identifier: Apache-2.0
// timeout: 240
// links: zero_gpu_listener zero_gpu_kernels zero_nccl
#include <catch2/catch.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include <zero/backends/nccl.hpp>
#include <zero/numeric/bfloat16.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "gpu/device_array.hpp"
#include "support/captured_work.hpp"
#include "support/rank_runner.hpp"

using namespace zero;
using namespace gpu_tests;
using test::captured_work;
using test::error_of;
using test::outcome;
using test::rank_error;

// NCCL itself with the one rank that one GPU can have: connecting without blocking, streams,
// graphs, aborts and their errors. What goes between ranks needs more devices.

namespace {

nccl_options settings() {
  return {.timeout = std::chrono::seconds(60), .setup_timeout = std::chrono::seconds(60)};
}

template <class T>
std::vector<T> values_of(const device_array<T>& array) {
  std::vector<T> values(array.size());
  array.read(0, values);
  return values;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!kernel_tests::same(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

template <class T>
range<const T, partial, cuda_space> input_of(const device_array<T>& array) {
  return {array.data(), array.size()};
}
template <class T, class Role>
range<T, Role, cuda_space> range_of(const device_array<T>& array) {
  return {array.data(), array.size()};
}

/// All collectives over the values: what the first one of them that changes a bit is called.
template <class T>
const char* collective_that_differs(nccl_communicator& comm, std::uint64_t count) {
  const unique_cuda_stream stream;
  const std::vector<T> values = kernel_tests::uneven_values<T>(count, count);
  const device_array<T> input(std::span<const T>(values), stream);
  device_array<T> output(count, stream);
  const auto result = [&] {
    comm.synchronize(stream);
    const std::vector<T> found = values_of(output);
    output.fill_bytes(0x5A);
    return found;
  };
  output.fill_bytes(0x5A);
  comm.reduce_scatter(input_of(input), range_of<T, shard>(output), {.scale = 1.0F}, stream)
      .wait(stream);
  if (!same(result(), values)) return "reduce_scatter";
  comm.all_gather(range<const T, shard, cuda_space>(input.data(), count), range_of<T, full>(output),
                  stream)
      .wait(stream);
  if (!same(result(), values)) return "all_gather";
  output.write(0, values);
  comm.broadcast(range_of<T, full>(output), 0, stream).wait(stream);
  if (!same(result(), values)) return "broadcast";
  // A factor that changes exponents only, so that no rounding depends on who applies it.
  comm.reduce_scatter(input_of(input), range_of<T, shard>(output), {.scale = 0.5F}, stream)
      .wait(stream);
  std::vector<T> halves;
  for (const T value : values) halves.push_back(static_cast<T>(static_cast<float>(value) * 0.5F));
  if (!same(result(), halves)) return "reduce_scatter with a scale";
  return "none";
}

}  // namespace

TEST_CASE("gpu nccl: which one it is") {
  int version = 0;
  REQUIRE(ncclGetVersion(&version) == ncclSuccess);
  // Read by scripts/gpu_check.sh.
  std::printf("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  CHECK(version >= 21801);
}

TEST_CASE("gpu nccl: the collectives of one rank keep every bit") {
  memory_store store;
  nccl_communicator comm(store, 0, 1, settings());
  CHECK(comm.rank() == 0);
  CHECK(comm.size() == 1);
  CHECK(comm.device() == 0);
  for (const std::uint64_t count : {1U, 8U, 1003U, 1048576U}) {
    CHECK(std::string_view(collective_that_differs<float>(comm, count)) == "none");
    CHECK(std::string_view(collective_that_differs<bfloat16>(comm, count)) == "none");
  }
  const unique_cuda_stream stream;
  const std::vector<double> values = {1.5, -3.0, 1e300};
  const device_array<double> sums(std::span<const double>(values), stream);
  comm.all_reduce(range_of<double, full>(sums), stream).wait(stream);
  comm.synchronize(stream);
  CHECK(values_of(sums) == values);
  nccl_communicator part = comm.split(3);
  CHECK(std::string_view(collective_that_differs<float>(part, 1003)) == "none");
}

TEST_CASE("gpu nccl: collectives are captured into a graph and run at every launch") {
  memory_store store;
  nccl_communicator comm(store, 0, 1, settings());
  const unique_cuda_stream stream;
  constexpr std::uint64_t count = 4096;
  device_array<float> input(count, stream);
  device_array<float> reduced(count, stream);
  device_array<float> gathered(count, stream);
  const auto enqueue = [&] {
    comm.reduce_scatter(input_of(input), range_of<float, shard>(reduced), {.scale = 1.0F}, stream)
        .wait(stream);
    comm.all_gather(range<const float, shard, cuda_space>(reduced.data(), count),
                    range_of<float, full>(gathered), stream)
        .wait(stream);
  };
  enqueue();  // NCCL connects at the first collective, which no capture allows
  comm.synchronize(stream);
  {
    captured_work graph(stream, enqueue);
    for (std::uint64_t launch = 0; launch < 4; ++launch) {
      const std::vector<float> values = kernel_tests::uneven_values<float>(count, launch);
      input.write(0, values);
      gathered.fill_bytes(0x5A);
      graph.launch();
      comm.synchronize(stream);
      CHECK(same(values_of(gathered), values));
    }
  }
  CHECK(std::string_view(collective_that_differs<float>(comm, 1003)) == "none");
}

TEST_CASE("gpu nccl: after an abort every call throws its reason") {
  {
    memory_store store;
    nccl_communicator comm(store, 0, 1, settings());
    const unique_cuda_stream stream;
    const device_array<double> values(1, stream);
    const auto reduce = [&] {
      comm.all_reduce(range_of<double, full>(values), stream).wait(stream);
    };
    reduce();
    comm.synchronize(stream);
    comm.abort("the test is over");
    for (int call = 0; call < 2; ++call) {
      const rank_error error = error_of(reduce);
      INFO(error.text);
      CHECK(error.kind == outcome::aborted);
      CHECK(error.says("the test is over"));
    }
  }
  // The device itself is as good as before.
  memory_store store;
  nccl_communicator comm(store, 0, 1, settings());
  CHECK(std::string_view(collective_that_differs<float>(comm, 1003)) == "none");
}

TEST_CASE("gpu nccl: wrong ranges and ranks, and a rank that does not come, have types") {
  memory_store store;
  const unique_cuda_stream stream;
  {
    nccl_communicator comm(store, 0, 1, settings());
    const device_array<float> input(8, stream);
    const device_array<float> output(3, stream);
    const rank_error wrong = error_of([&] {
      comm.reduce_scatter(input_of(input), range_of<float, shard>(output), {.scale = 1.0F}, stream)
          .wait(stream);
    });
    INFO(wrong.text);
    CHECK(wrong.kind == outcome::usage);
    CHECK(std::string_view(collective_that_differs<float>(comm, 8)) == "none");
  }
  memory_store second_store;
  CHECK(error_of([&] { nccl_communicator(second_store, 2, 2, settings()); }).kind ==
        outcome::usage);
  nccl_options hasty = settings();
  hasty.setup_timeout = std::chrono::milliseconds(300);
  memory_store third_store;
  const rank_error lonely = error_of([&] { nccl_communicator(third_store, 0, 2, hasty); });
  INFO(lonely.text);
  CHECK(lonely.kind == outcome::timeout);
  CHECK(lonely.says("1"));
}
