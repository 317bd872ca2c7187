// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime, on the simulated machine.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/simulated_device/graph.hpp"
#include "support/simulated_device/machine.hpp"

namespace {

using zero::test::simulated::check_capture;
using zero::test::simulated::current_device;
using zero::test::simulated::event;
using zero::test::simulated::last_error_code;
using zero::test::simulated::leave_capture;
using zero::test::simulated::machine;
using zero::test::simulated::node;
using zero::test::simulated::record_in_capture;
using zero::test::simulated::recording;
using zero::test::simulated::stream;
using zero::test::simulated::wait_in_capture;

cudaError_t keep(cudaError_t result) {
  if (result != cudaSuccess && result != cudaErrorNotReady) last_error_code() = result;
  return result;
}

/// Runs a function on the machine, unless there is none or a fault was planned for this call.
template <class Function>
cudaError_t call(const char* name, Function function) {
  auto& m = machine::instance();
  auto lock = m.lock();
  if (!m.is_on() || m.options().devices == 0) return keep(cudaErrorInsufficientDriver);
  int fault = m.count_call(name);
  if (fault == machine::stalls) {
    m.stay(lock);
    fault = 0;
  }
  if (fault != 0 && fault != cudaErrorNotReady) return keep(static_cast<cudaError_t>(fault));
  return keep(function(m, lock, fault != 0));
}

/// The same with a stream; the default stream is none, because the library never uses it.
template <class Function>
cudaError_t call_on(const char* name, cudaStream_t handle, Function function) {
  return call(name, [&](machine& m, auto& lock, bool is_dropped) {
    stream* const s = m.find_stream(handle);
    if (s == nullptr) {
      m.find(std::string(name) + ": the stream is not one that was created" +
             (handle == nullptr ? " (the default stream)" : ""));
      return cudaErrorInvalidResourceHandle;
    }
    return function(m, lock, *s, is_dropped);
  });
}

bool has_run(const stream& s, std::uint64_t upto) {
  return s.ran >= upto;
}

struct known_error {
  cudaError_t code;
  const char* name;
  const char* text;
};
constexpr known_error known_errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t code) {
  for (const known_error& known : known_errors) {
    if (known.code == code) return known.name;
  }
  return "cudaErrorUnknown";
}

const char* cudaGetErrorString(cudaError_t code) {
  for (const known_error& known : known_errors) {
    if (known.code == code) return known.text;
  }
  return "an error that the simulated device has no text for";
}

cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(std::exchange(last_error_code(), 0));
}

cudaError_t cudaPeekAtLastError() {
  return static_cast<cudaError_t>(last_error_code());
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&](machine& m, auto&, bool) {
    *count = m.options().devices;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&](machine&, auto&, bool) {
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](machine& m, auto&, bool) {
    if (device < 0 || device >= m.options().devices) return cudaErrorInvalidDevice;
    current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&](machine&, auto&, bool) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call("cudaDeviceCanAccessPeer", [&](machine&, auto&, bool) {
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return call("cudaDeviceEnablePeerAccess", [](machine&, auto&, bool) { return cudaSuccess; });
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return call("cudaMalloc", [&](machine& m, auto&, bool) {
    if (const auto refused = check_capture(m, "cudaMalloc")) return refused;
    constexpr std::size_t alignment = 256;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    // Exactly as many bytes as were asked for, so that address sanitizer sees the end.
    void* block = nullptr;
    if (posix_memalign(&block, alignment, bytes) != 0) return cudaErrorMemoryAllocation;
    std::memset(block, 0xCD, bytes);  // never the zeros that a program may hope for
    m.allocations.emplace(block, current_device());
    *pointer = block;
    return cudaSuccess;
  });
}

// As a device does, it waits for what is on its way: a peer may still read the memory.
cudaError_t cudaFree(void* pointer) {
  return call("cudaFree", [&](machine& m, auto& lock, bool) {
    if (pointer == nullptr) return cudaSuccess;
    if (const auto refused = check_capture(m, "cudaFree")) return refused;
    const auto found = m.allocations.find(pointer);
    if (found == m.allocations.end()) return cudaErrorInvalidValue;
    if (!m.drain(lock, found->second, "cudaFree")) return cudaErrorLaunchTimeout;
    m.allocations.erase(pointer);
    std::free(pointer);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return call("cudaMallocHost", [&](machine& m, auto&, bool) {
    if (const auto refused = check_capture(m, "cudaMallocHost")) return refused;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    void* const block = std::malloc(bytes);
    if (block == nullptr) return cudaErrorMemoryAllocation;
    std::memset(block, 0xCD, bytes);
    m.pinned.emplace(block, bytes);
    *pointer = block;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* pointer) {
  return call("cudaFreeHost", [&](machine& m, auto&, bool) {
    if (pointer == nullptr) return cudaSuccess;
    if (const auto refused = check_capture(m, "cudaFreeHost")) return refused;
    if (m.pinned.erase(pointer) == 0) return cudaErrorInvalidValue;
    // Unlike cudaFree it waits for nothing: a copy that is still to come would write to freed
    // memory, which address sanitizer sees.
    std::free(pointer);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned, int) {
  return call("cudaStreamCreateWithPriority", [&](machine& m, auto&, bool) {
    *handle = reinterpret_cast<cudaStream_t>(m.add_stream(current_device()));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call_on("cudaStreamDestroy", handle, [](machine& m, auto&, stream& s, bool) {
    leave_capture(m, s);
    // A real stream finishes what it holds after it was destroyed.
    while (!s.nodes.empty() && m.step()) {
    }
    if (!s.nodes.empty()) {
      m.find("cudaStreamDestroy: " + std::to_string(s.nodes.size()) + " nodes can never run, " +
             s.nodes.front().name + " is the first");
    }
    m.remove_stream(&s);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call_on("cudaStreamSynchronize", handle, [](machine& m, auto& lock, stream& s, bool) {
    if (const auto refused = check_capture(m, "cudaStreamSynchronize", &s)) return refused;
    const std::uint64_t upto = s.enqueued;
    return m.drive(
               lock, [&] { return has_run(s, upto); }, "cudaStreamSynchronize")
               ? cudaSuccess
               : cudaErrorLaunchTimeout;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return call_on("cudaStreamGetId", handle, [&](machine&, auto&, stream& s, bool) {
    *id = s.number;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call_on("cudaStreamQuery", handle, [](machine& m, auto&, stream& s, bool) {
    if (const auto refused = check_capture(m, "cudaStreamQuery", &s)) return refused;
    m.look();
    return s.nodes.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t waited_for, unsigned) {
  return call_on("cudaStreamWaitEvent", handle, [&](machine& m, auto&, stream& s, bool is_dropped) {
    event* const e = m.find_event(waited_for);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    is_dropped = s.dropped.count(s.waits++) != 0 || is_dropped;
    if (is_dropped) return cudaSuccess;
    cudaError_t result = cudaSuccess;
    if (wait_in_capture(m, s, *e, result)) return result;
    // An event that was never recorded holds nobody up.
    if (!e->latest) return cudaSuccess;
    m.enqueue(s, {.name = "cudaStreamWaitEvent",
                  .is_ready = [edge = e->latest] { return edge->is_done; },
                  .run = {}});
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  return call("cudaEventCreateWithFlags", [&](machine& m, auto&, bool) {
    *handle = reinterpret_cast<cudaEvent_t>(m.add_event(current_device()));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call("cudaEventDestroy", [&](machine& m, auto&, bool) {
    event* const e = m.find_event(handle);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    m.remove_event(e);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  return call_on("cudaEventRecord", on, [&](machine& m, auto&, stream& s, bool) {
    event* const e = m.find_event(handle);
    if (e == nullptr || e->device != s.device) return cudaErrorInvalidResourceHandle;
    if (s.part_of) {
      record_in_capture(*e, s);
      return cudaSuccess;
    }
    e->captured_in.reset();
    e->latest = std::make_shared<recording>();
    m.enqueue(s, {.name = "cudaEventRecord", .is_ready = {}, .run = [edge = e->latest] {
                    edge->is_done = true;
                  }});
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call("cudaEventQuery", [&](machine& m, auto&, bool) {
    m.look();
    event* const e = m.find_event(handle);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (const auto refused = check_capture(m, "cudaEventQuery", nullptr, e)) return refused;
    return !e->latest || e->latest->is_done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call("cudaEventSynchronize", [&](machine& m, auto& lock, bool) {
    event* const e = m.find_event(handle);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    if (const auto refused = check_capture(m, "cudaEventSynchronize", nullptr, e)) return refused;
    if (!e->latest) return cudaSuccess;
    return m.drive(
               lock, [edge = e->latest] { return edge->is_done; }, "cudaEventSynchronize")
               ? cudaSuccess
               : cudaErrorLaunchTimeout;
  });
}

// As CUDA promises for host memory that is not pinned: what goes to a device is staged before the
// call returns, what comes from one has arrived then.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t on) {
  return call_on("cudaMemcpyAsync", on, [&](machine& m, auto& lock, stream& s, bool) {
    if (bytes == 0) return cudaSuccess;
    if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
    // A graph copies when it runs, from and to what is there then.
    const bool is_captured = s.part_of != nullptr;
    if (kind == cudaMemcpyHostToDevice && !is_captured && !m.is_pinned(from, bytes)) {
      const auto* const first = static_cast<const std::byte*>(from);
      m.enqueue(s, {.name = "cudaMemcpyAsync",
                    .is_ready = {},
                    .run = [to, staged = std::vector<std::byte>(first, first + bytes)] {
                      std::memcpy(to, staged.data(), staged.size());
                    }});
      return cudaSuccess;
    }
    m.enqueue(s, {.name = "cudaMemcpyAsync", .is_ready = {}, .run = [to, from, bytes] {
                    std::memmove(to, from, bytes);
                  }});
    if (kind != cudaMemcpyDeviceToHost || is_captured || m.is_pinned(to, bytes)) return cudaSuccess;
    const std::uint64_t upto = s.enqueued;
    return m.drive(
               lock, [&] { return has_run(s, upto); }, "cudaMemcpyAsync to pageable memory")
               ? cudaSuccess
               : cudaErrorLaunchTimeout;
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t on) {
  return call_on("cudaMemsetAsync", on, [&](machine& m, auto&, stream& s, bool) {
    if (bytes == 0) return cudaSuccess;
    if (to == nullptr) return cudaErrorInvalidValue;
    m.enqueue(s, {.name = "cudaMemsetAsync", .is_ready = {}, .run = [to, value, bytes] {
                    std::memset(to, value, bytes);
                  }});
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t on, cudaHostFn_t function, void* data) {
  return call_on("cudaLaunchHostFunc", on, [&](machine& m, auto&, stream& s, bool) {
    m.enqueue(s, {.name = "cudaLaunchHostFunc", .is_ready = {}, .run = [function, data] {
                    function(data);
                  }});
    return cudaSuccess;
  });
}

}  // extern "C"
