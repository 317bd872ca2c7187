// SPDX-License-Identifier: Apache-2.0
// labels: simulated_device
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <zero/cuda/device.hpp>
#include <zero/cuda/event.hpp>
#include <zero/cuda/memory.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/cuda/stream.hpp>

#include "support/simulated_device/simulated_device.hpp"

// The fake itself: what is ordered stays ordered under every seed, and what is not ordered goes
// wrong under some.

using namespace zero;
using namespace zero::test;

namespace {

constexpr std::uint64_t seeds = 200;

/// The only finding says this.
bool only_finding_says(const simulated_device& device, const std::string& part) {
  const auto findings = device.findings();
  return findings.size() == 1 && findings[0].find(part) != std::string::npos;
}

/// A bucketed reduce-scatter loop as an overlapping engine has it: two bucket buffers per rank, one
/// compute and one communication stream, four ranks driven by one thread.
class bucket_loop {
 public:
  static constexpr int ranks = 4;
  static constexpr int buckets = 6;
  static constexpr std::size_t shard_elements = 3;

  enum class mistake { none, reduce_too_early, reuse_too_early };

  /// The number of results that are wrong.
  static int run(std::uint64_t seed, mistake made, std::uint64_t& order) {
    simulated_device device({.seed = seed, .devices = ranks});
    int wrong = 0;
    {
      bucket_loop loop(made);
      wrong = loop.train();
    }
    order = device.order();
    return wrong + static_cast<int>(device.findings().size());
  }

 private:
  struct rank_state {
    ncclComm_t comm = nullptr;
    unique_cuda_stream compute;
    unique_cuda_stream transfer;
    unique_cuda_event written[2];
    unique_cuda_event reduced[2];
    std::vector<float> bucket[2];
    std::vector<float> result[2];
    std::vector<float> source[2];  // what a backward pass would compute
    std::vector<std::vector<float>> sums;
  };

  explicit bucket_loop(mistake made) : made_(made) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int r = 0; r < ranks; ++r) {
      const cuda_device_guard guard(r);
      state_.push_back(std::make_unique<rank_state>());
      ncclCommInitRankConfig(&state_.back()->comm, ranks, id, r, &config);
    }
    for (auto& s : state_) settle(s->comm);
  }
  ~bucket_loop() {
    for (auto& s : state_) ncclCommDestroy(s->comm);
  }

  static void settle(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
  }

  int train() {
    for (int r = 0; r < ranks; ++r) {
      auto& s = *state_[static_cast<std::size_t>(r)];
      s.sums.resize(buckets);
      for (int k = 0; k < 2; ++k) {
        s.bucket[k].resize(shard_elements * ranks);
        s.result[k].resize(shard_elements);
      }
    }
    for (int b = 0; b < buckets; ++b) {
      for (int r = 0; r < ranks; ++r) enqueue(r, b);
    }
    int wrong = 0;
    for (int r = 0; r < ranks; ++r) {
      auto& s = *state_[static_cast<std::size_t>(r)];
      s.transfer.synchronize();
      s.compute.synchronize();
      for (int b = 0; b < buckets; ++b) {
        const auto& sum = s.sums[static_cast<std::size_t>(b)];
        wrong += sum == std::vector<float>(shard_elements, expected(b)) ? 0 : 1;
      }
    }
    return wrong;
  }

  static float value(int rank, int bucket) { return static_cast<float>(1 + rank + 10 * bucket); }
  static float expected(int bucket) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, bucket);
    return sum;
  }

  /// Gradients of bucket b into its buffer, the reduce-scatter, and what uses the result.
  void enqueue(int rank, int b) {
    auto& s = *state_[static_cast<std::size_t>(rank)];
    const int k = b % 2;
    if (b >= 2 && made_ != mistake::reuse_too_early) s.reduced[k].hold(s.compute);
    later_.push_back(std::vector<float>(s.bucket[k].size(), value(rank, b)));
    cudaMemcpyAsync(s.bucket[k].data(), later_.back().data(), bytes(later_.back()),
                    cudaMemcpyDefault, s.compute.get());
    s.written[k].record(s.compute);
    if (made_ != mistake::reduce_too_early) s.written[k].hold(s.transfer);
    ncclReduceScatter(s.bucket[k].data(), s.result[k].data(), shard_elements, ncclFloat32, ncclSum,
                      s.comm, s.transfer.get());
    settle(s.comm);
    auto& sum = s.sums[static_cast<std::size_t>(b)];
    sum.resize(shard_elements);
    cudaMemcpyAsync(sum.data(), s.result[k].data(), bytes(sum), cudaMemcpyDefault,
                    s.transfer.get());
    s.reduced[k].record(s.transfer);
  }

  static std::size_t bytes(const std::vector<float>& values) {
    return values.size() * sizeof(float);
  }

  mistake made_;
  std::vector<std::unique_ptr<rank_state>> state_;
  std::vector<std::vector<float>> later_;
};

struct loop_result {
  int failing_seeds = 0;
  std::size_t orders = 0;
};

loop_result run_loops(bucket_loop::mistake made) {
  loop_result result;
  std::set<std::uint64_t> orders;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::uint64_t order = 0;
    result.failing_seeds += bucket_loop::run(seed, made, order) != 0 ? 1 : 0;
    orders.insert(order);
  }
  result.orders = orders.size();
  return result;
}

}  // namespace

TEST_CASE("a bucketed reduce-scatter loop is right under every seed, and wrong without a wait") {
  const loop_result right = run_loops(bucket_loop::mistake::none);
  const loop_result early = run_loops(bucket_loop::mistake::reduce_too_early);
  const loop_result reused = run_loops(bucket_loop::mistake::reuse_too_early);
  WARN("of " << seeds << " seeds fail: " << right.failing_seeds << " of the right loop in "
             << right.orders << " different orders, " << early.failing_seeds
             << " without the wait for the gradients, " << reused.failing_seeds
             << " without the wait for the buffer");
  CHECK(right.failing_seeds == 0);
  CHECK(right.orders >= 100);
  CHECK(early.failing_seeds > static_cast<int>(seeds) / 2);
  CHECK(reused.failing_seeds > static_cast<int>(seeds) / 2);
}

TEST_CASE("an event is an edge for what was recorded, and not for what came later") {
  int reordered = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device device({.seed = seed});
    std::vector<int> ran;
    struct entry {
      std::vector<int>* ran;
      int number;
    };
    entry entries[] = {{&ran, 0}, {&ran, 1}, {&ran, 2}, {&ran, 3}};
    const auto note = [](void* data) {
      const auto* e = static_cast<const entry*>(data);
      e->ran->push_back(e->number);
    };
    unique_cuda_stream first;
    unique_cuda_stream second;
    unique_cuda_event mark;
    cudaLaunchHostFunc(first.get(), note, &entries[0]);
    mark.record(first);
    mark.hold(second);
    cudaLaunchHostFunc(first.get(), note, &entries[1]);
    mark.record(first);  // does not move the edge of the wait above
    cudaLaunchHostFunc(first.get(), note, &entries[2]);
    cudaLaunchHostFunc(second.get(), note, &entries[3]);
    second.synchronize();
    first.synchronize();
    const auto position = [&](int number) {
      return std::find(ran.begin(), ran.end(), number) - ran.begin();
    };
    REQUIRE(ran.size() == 4);
    REQUIRE(position(0) < position(1));
    REQUIRE(position(1) < position(2));
    REQUIRE(position(0) < position(3));
    reordered += position(3) < position(1) ? 1 : 0;
    REQUIRE(device.findings().empty());
  }
  CHECK(reordered > 0);
  CHECK(reordered < static_cast<int>(seeds));
}

TEST_CASE("one seed gives one order") {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t other = 0;
  bucket_loop::run(5, bucket_loop::mistake::none, first);
  bucket_loop::run(5, bucket_loop::mistake::none, second);
  bucket_loop::run(6, bucket_loop::mistake::none, other);
  CHECK(first == second);
  CHECK(first != other);
}

TEST_CASE("a wait that nothing can fulfil is a deadlock with a text") {
  simulated_device device({.devices = 2});
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[2] = {};
  for (int r = 0; r < 2; ++r) {
    const cuda_device_guard guard(r);
    REQUIRE(ncclCommInitRankConfig(&comms[r], 2, id, r, &config) == ncclInProgress);
  }
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) ncclCommGetAsyncError(comms[0], &state);
  std::vector<float> values(4);
  const unique_cuda_stream stream;
  ncclAllReduce(values.data(), values.data(), 4, ncclFloat32, ncclSum, comms[0], stream.get());
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorLaunchTimeout);
  CHECK(only_finding_says(device, "deadlock: cudaStreamSynchronize waits for ever"));
  CHECK(only_finding_says(device, "NCCL #0 of rank 0 (waits for peers)"));
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  CHECK(cudaStreamSynchronize(stream.get()) == cudaSuccess);  // an abort ends the kernel
}

TEST_CASE("a fault is the k-th call of a function, of all threads or of one") {
  simulated_device device;
  device.fail({.function = "cudaMalloc", .call = 1, .code = cudaErrorMemoryAllocation});
  cuda_memory memory(0);
  void* const block = memory.allocate(100, 64);
  std::string text;
  try {
    memory.allocate(1000, 256);
  } catch (const cuda_error& e) {
    text = e.what();
  }
  CHECK(text ==
        "cudaMalloc of 1000 bytes on device 0: cudaErrorMemoryAllocation (2), out of memory");
  memory.deallocate(block, 100, 64);
  CHECK_THROWS_AS(memory.allocate(8, 512), usage_error);

  simulated_device::name_host_thread(3);
  device.drop_wait(0, 3);
  unique_cuda_stream stream;
  unique_cuda_event event;
  event.record(stream);
  event.hold(stream);
  CHECK(device.waits(3) == 1);
  CHECK(device.waits() == 1);
  simulated_device::name_host_thread(-1);
}

TEST_CASE("a fault that lasts is every later call of that thread, and what is left is counted") {
  simulated_device device;
  simulated_device::name_host_thread(1);
  const unique_cuda_stream stream;
  device.fail({.function = "cudaMalloc",
               .call = 1,
               .code = cudaErrorIllegalAddress,
               .host_thread = 1,
               .lasts = true});
  void* block = nullptr;
  void* other = nullptr;
  CHECK(cudaMalloc(&block, 4) == cudaSuccess);
  CHECK(device.faults_met() == 0);
  CHECK(cudaMalloc(&other, 4) == cudaErrorIllegalAddress);
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorIllegalAddress);
  CHECK(cudaFree(block) == cudaErrorIllegalAddress);
  simulated_device::name_host_thread(-1);
  CHECK(device.faults_met() == 3);
  CHECK(device.calls(1).at("cudaMalloc") == 2);
  CHECK(device.alive() == std::map<std::string, std::uint64_t>{
                              {"cudaMalloc", 1}, {"cudaStreamCreateWithPriority", 1}});
  CHECK(cudaFree(block) == cudaSuccess);
  CHECK(device.alive().size() == 1);
}

TEST_CASE("a call that stalls returns when it may go on") {
  simulated_device device;
  device.stall("cudaMalloc", 0, 5);
  std::atomic<bool> has_returned{false};
  std::thread other([&] {
    simulated_device::name_host_thread(5);
    void* block = nullptr;
    cudaMalloc(&block, 4);
    has_returned = true;
    cudaFree(block);
  });
  while (device.faults_met() == 0) std::this_thread::yield();
  CHECK(!has_returned);
  device.go_on();
  other.join();
  CHECK(has_returned);
}

TEST_CASE("memory is given back when what the device holds is done") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    simulated_device device({.seed = seed});
    void* block = nullptr;
    cudaMalloc(&block, 4);
    const unique_cuda_stream stream;
    int value = 0;
    cudaMemsetAsync(block, 1, 4, stream.get());
    cudaMemcpyAsync(&value, block, 4, cudaMemcpyDefault, stream.get());
    CHECK(cudaFree(block) == cudaSuccess);
    CHECK(value == 0x01010101);
  }
}

TEST_CASE("a machine without a driver has no devices and says why in one line") {
  {
    simulated_device device({.devices = 0});
    const cuda_devices found = cuda_device_count();
    CHECK(found.count == 0);
    CHECK(found.reason ==
          "no CUDA device: cudaGetDeviceCount: cudaErrorInsufficientDriver (35), CUDA driver "
          "version is insufficient for CUDA runtime version");
    CHECK(cudaGetLastError() == cudaSuccess);
  }
  simulated_device device({.devices = 3});
  CHECK(cuda_device_count().count == 3);
  CHECK(cuda_device_count().reason.empty());
  CHECK_THROWS_AS(cuda_device_guard(3), cuda_error);
  {
    const cuda_device_guard guard(2);
    CHECK(current_cuda_device() == 2);
  }
  CHECK(current_cuda_device() == 0);
}

TEST_CASE("a queue is a stream that somebody made") {
  simulated_device device;
  static_assert(!std::is_default_constructible_v<cuda_queue>);
  static_assert(!std::is_constructible_v<cuda_queue, std::nullptr_t>);
  const cudaStream_t none = nullptr;
  CHECK_THROWS_WITH(cuda_queue(none), Catch::Contains("a null stream"));
  CHECK(cudaStreamSynchronize(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(only_finding_says(device, "the default stream"));
}

namespace {

struct count_body {
  int* counters;
  int addend;
  void run(std::uint64_t thread, std::uint64_t threads) const {
    counters[thread] += addend * static_cast<int>(threads);
  }
};
void count_entry(count_body) {}
void unknown_entry(count_body) {}

}  // namespace

extern "C" {
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*);
unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, size_t, struct CUstream_st* on);
cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, size_t*, void* on);
cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}

TEST_CASE("a launch as nvcc writes it runs the body that stands for the kernel") {
  simulated_device device;
  simulate_kernel(&count_entry);
  // What the object file of a .cu does before main, and at <<<2, 3, 0, stream>>>.
  void** const binary = __cudaRegisterFatBinary(nullptr);
  const auto name = [&](void (*stub)(count_body), const char* text) {
    __cudaRegisterFunction(binary, reinterpret_cast<const char*>(stub), nullptr, text, -1, nullptr,
                           nullptr, nullptr, nullptr, nullptr);
  };
  name(&count_entry, "count");
  name(&unknown_entry, "unknown");
  const auto launch = [](void (*stub)(count_body), count_body body, cudaStream_t on) {
    REQUIRE(__cudaPushCallConfiguration(dim3(2), dim3(3), 0, on) == 0);
    cudaKernel_t kernel = nullptr;
    dim3 blocks;
    dim3 threads;
    std::size_t shared_bytes = 1;
    cudaStream_t stream = nullptr;
    __cudaGetKernel(&kernel, reinterpret_cast<const void*>(stub));
    REQUIRE(__cudaPopCallConfiguration(&blocks, &threads, &shared_bytes, &stream) == cudaSuccess);
    void* arguments[] = {&body};
    static_cast<void>(__cudaLaunchKernel(kernel, blocks, threads, arguments, shared_bytes, stream));
  };
  int counters[6] = {};
  const unique_cuda_stream stream;
  launch(&count_entry, {counters, 1}, stream.get());
  launch(&count_entry, {counters, 10}, stream.get());  // its argument was copied at the launch
  stream.synchronize();
  for (const int counter : counters) CHECK(counter == 66);
  CHECK(cudaGetLastError() == cudaSuccess);
  launch(&unknown_entry, {counters, 1}, stream.get());
  CHECK(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
  CHECK(only_finding_says(device, "no host function stands for unknown"));
}
