// SPDX-License-Identifier: Apache-2.0
// labels: simulated_device
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <zero/cuda/event.hpp>
#include <zero/cuda/stream.hpp>

#include "support/simulated_device/simulated_device.hpp"

// Capture and launch of graphs on the simulated device: what is captured runs at each launch, in
// any order that its edges allow, and what CUDA forbids in a capture is refused and found.

using namespace zero;
using namespace zero::test;

namespace {

struct entry {
  std::vector<int>* ran;
  int number;
};

void note(void* data) {
  const auto* e = static_cast<const entry*>(data);
  e->ran->push_back(e->number);
}

void begin(const unique_cuda_stream& stream) {
  REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
}

cudaStreamCaptureStatus status_of(const unique_cuda_stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusInvalidated;
  REQUIRE(cudaStreamIsCapturing(stream.get(), &status) == cudaSuccess);
  return status;
}

/// Ends the capture and makes what is launched.
class unique_graph {
 public:
  explicit unique_graph(const unique_cuda_stream& stream) {
    REQUIRE(cudaStreamEndCapture(stream.get(), &graph_) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&executable_, graph_, 0) == cudaSuccess);
  }
  unique_graph(const unique_graph&) = delete;
  unique_graph& operator=(const unique_graph&) = delete;
  ~unique_graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  void launch(const unique_cuda_stream& stream) const {
    REQUIRE(cudaGraphLaunch(executable_, stream.get()) == cudaSuccess);
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

bool only_finding_says(const simulated_device& device, const std::string& part) {
  const auto findings = device.findings();
  return findings.size() == 1 && findings[0].find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a graph runs what was captured at each launch, in every order that its edges allow") {
  int reordered = 0;
  constexpr int seeds = 100;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    simulated_device device({.seed = seed});
    std::vector<int> ran;
    entry entries[] = {{&ran, 0}, {&ran, 1}, {&ran, 2}, {&ran, 3}, {&ran, 4}, {&ran, 5}};
    {
      const unique_cuda_stream stream;
      const unique_cuda_stream side;
      unique_cuda_event fork;
      unique_cuda_event join;
      begin(stream);
      cudaLaunchHostFunc(stream.get(), note, &entries[0]);
      CHECK(status_of(side) == cudaStreamCaptureStatusNone);
      fork.record(stream);
      fork.hold(side);
      CHECK(status_of(side) == cudaStreamCaptureStatusActive);
      cudaLaunchHostFunc(side.get(), note, &entries[1]);
      cudaLaunchHostFunc(stream.get(), note, &entries[2]);
      join.record(side);
      join.hold(stream);
      cudaLaunchHostFunc(stream.get(), note, &entries[3]);
      const unique_graph graph(stream);
      CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
      CHECK(status_of(side) == cudaStreamCaptureStatusNone);
      CHECK(ran.empty());
      cudaLaunchHostFunc(stream.get(), note, &entries[4]);
      graph.launch(stream);
      graph.launch(stream);
      cudaLaunchHostFunc(stream.get(), note, &entries[5]);
      stream.synchronize();
    }
    REQUIRE(ran.size() == 10);
    CHECK(ran.front() == 4);
    CHECK(ran.back() == 5);
    for (const std::size_t first : {1U, 5U}) {
      CHECK(ran[first] == 0);
      CHECK(ran[first + 1] + ran[first + 2] == 3);
      CHECK(ran[first + 3] == 3);
      reordered += ran[first + 1] == 2 ? 1 : 0;
    }
    CHECK(device.findings() == std::vector<std::string>{});
    CHECK(device.alive().empty());
  }
  CHECK(reordered > 0);
  CHECK(reordered < 2 * seeds);
}

TEST_CASE("a graph copies what is there when it runs") {
  simulated_device device;
  const unique_cuda_stream stream;
  int from = 1;
  int to = 0;
  begin(stream);
  cudaMemcpyAsync(&to, &from, sizeof to, cudaMemcpyHostToDevice, stream.get());
  const unique_graph graph(stream);
  from = 2;
  graph.launch(stream);
  stream.synchronize();
  CHECK(to == 2);
}

TEST_CASE("what CUDA forbids in a capture is refused, spoils it, and is found") {
  const auto spoils = [](cudaError_t expected, const std::string& text, auto call) {
    simulated_device device;
    const unique_cuda_stream stream;
    const unique_cuda_stream other;
    unique_cuda_event event;
    event.record(other);
    begin(stream);
    CHECK(call(stream, other, event) == expected);
    CHECK(status_of(stream) == cudaStreamCaptureStatusInvalidated);
    CHECK(only_finding_says(device, text));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    CHECK(status_of(stream) == cudaStreamCaptureStatusNone);
  };
  using stream_type = const unique_cuda_stream&;
  spoils(cudaErrorStreamCaptureUnsupported, "cudaMalloc: forbidden",
         [](stream_type, stream_type, unique_cuda_event&) {
           void* block = nullptr;
           return cudaMalloc(&block, 4);
         });
  spoils(cudaErrorStreamCaptureUnsupported, "cudaStreamSynchronize: the stream is being captured",
         [](stream_type stream, stream_type, unique_cuda_event&) {
           return cudaStreamSynchronize(stream.get());
         });
  spoils(cudaErrorStreamCaptureUnsupported, "cudaEventQuery: forbidden",
         [](stream_type, stream_type, unique_cuda_event& event) {
           return cudaEventQuery(event.get());
         });
  spoils(cudaErrorCapturedEvent, "cudaEventQuery: the event was recorded in a capture",
         [](stream_type stream, stream_type, unique_cuda_event& event) {
           event.record(stream);
           return cudaEventQuery(event.get());
         });
  spoils(cudaErrorStreamCaptureIsolation, "waits for what is not captured",
         [](stream_type stream, stream_type, unique_cuda_event& event) {
           return cudaStreamWaitEvent(stream.get(), event.get(), 0);
         });
}

TEST_CASE("a relaxed thread may ask for events while another one captures") {
  simulated_device device;
  const unique_cuda_stream stream;
  const unique_cuda_stream other;
  unique_cuda_event event;
  event.record(other);
  begin(stream);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeGlobal);
  const cudaError_t asked = cudaEventQuery(event.get());
  CHECK((asked == cudaSuccess || asked == cudaErrorNotReady));
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(status_of(stream) == cudaStreamCaptureStatusActive);
  const unique_graph graph(stream);
  CHECK(device.findings().empty());
}

TEST_CASE("a stream that took part has to be joined, and captures stay apart") {
  simulated_device device;
  const unique_cuda_stream stream;
  const unique_cuda_stream side;
  unique_cuda_event fork;
  int value = 0;
  begin(stream);
  fork.record(stream);
  fork.hold(side);
  cudaMemsetAsync(&value, 1, sizeof value, side.get());
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(side.get(), &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(only_finding_says(device, "was not joined"));
  CHECK(cudaStreamWaitEvent(side.get(), fork.get(), 0) == cudaErrorCapturedEvent);
  begin(stream);
  begin(side);
  fork.record(stream);
  CHECK(cudaStreamWaitEvent(side.get(), fork.get(), 0) == cudaErrorStreamCaptureMerge);
  CHECK(status_of(stream) == cudaStreamCaptureStatusInvalidated);
  CHECK(status_of(side) == cudaStreamCaptureStatusInvalidated);
  CHECK(value == 0);
}
