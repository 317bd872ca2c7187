// SPDX-License-Identifier: Apache-2.0
// Graphs: a captured stream collects what it is given, and a launch runs fresh copies of it, in any
// order that the captured edges allow.

#include "support/simulated_device/graph.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/simulated_device/machine.hpp"

namespace zero::test::simulated {
namespace {

using calls_type = std::vector<captured_call>;

struct graph {
  calls_type calls;
};

struct executable {
  calls_type calls;
  std::shared_ptr<recording> latest;  // the end of the launch before: launches do not overlap
};

struct library {
  std::vector<std::shared_ptr<capture>> captures;  // in progress
  std::vector<std::unique_ptr<graph>> graphs;
  std::vector<std::unique_ptr<executable>> executables;
};

library& graphs() {
  static library the_library;
  return the_library;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

template <class T>
T* find_in(const std::vector<std::unique_ptr<T>>& all, const void* handle) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& owned) { return owned.get() == handle; });
  return found == all.end() ? nullptr : found->get();
}

void add_once(std::vector<std::size_t>& ends, const std::vector<std::size_t>& more) {
  for (const std::size_t end : more) {
    if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
  }
}

cudaError_t invalidate(machine& m, capture& c, cudaError_t code, const std::string& why) {
  c.is_invalid = true;
  m.find(why);
  return code;
}

/// Whether the calling thread may not make calls that CUDA holds for unsafe in a capture.
bool forbids(const capture& c) {
  if (thread_mode == cudaStreamCaptureModeRelaxed || c.mode == cudaStreamCaptureModeRelaxed) {
    return false;
  }
  if (c.thread == std::this_thread::get_id()) return true;
  return c.mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
}

/// Whether all that was captured comes before the end of the origin.
bool is_joined(const capture& c) {
  std::vector<bool> is_before(c.calls.size());
  std::vector<std::size_t> left = c.origin->ends;
  while (!left.empty()) {
    const std::size_t call = left.back();
    left.pop_back();
    if (is_before[call]) continue;
    is_before[call] = true;
    left.insert(left.end(), c.calls[call].after.begin(), c.calls[call].after.end());
  }
  return std::all_of(is_before.begin(), is_before.end(), [](bool is_it) { return is_it; });
}

/// One launch: calls in lanes of their own, which are streams that go when they are empty.
class launched_graph {
 public:
  launched_graph(machine& m, executable& of) : machine_(m), of_(of) {}

  void enqueue(stream& s) {
    machine_.push(s, {.name = "cudaGraphLaunch",
                      .is_ready = [before = of_.latest] { return !before || before->is_done; },
                      .run = mark(start_)});
    for (std::size_t i = 0; i < of_.calls.size(); ++i) add(i);
    of_.latest = std::make_shared<recording>();
    machine_.enqueue(s, {.name = "the end of cudaGraphLaunch",
                         .is_ready = all_done(ends_),
                         .run = mark(of_.latest)});
  }

 private:
  using edges = std::vector<std::shared_ptr<recording>>;

  static std::function<void()> mark(std::shared_ptr<recording> edge) {
    return [edge = std::move(edge)] { edge->is_done = true; };
  }
  static std::function<bool()> all_done(edges before) {
    return [before = std::move(before)] {
      return std::all_of(before.begin(), before.end(), [](const auto& e) { return e->is_done; });
    };
  }

  void add(std::size_t i) {
    const captured_call& call = of_.calls[i];
    edges before{start_};
    for (const std::size_t other : call.after) before.push_back(ends_[other]);
    stream& lane = lane_for(call);
    ends_.push_back(std::make_shared<recording>());
    machine_.push(
        lane, {.name = "an edge of a graph", .is_ready = all_done(std::move(before)), .run = {}});
    for (node& n : call.make()) machine_.push(lane, std::move(n));
    machine_.push(lane, {.name = "a call of a graph", .is_ready = {}, .run = mark(ends_.back())});
    lanes_.push_back({lane.number, true});
  }

  /// That of a call which it follows immediately, or a new one.
  stream& lane_for(const captured_call& call) {
    for (const std::size_t other : call.after) {
      if (!lanes_[other].is_last) continue;
      if (stream* const lane = machine_.find_lane(lanes_[other].number)) {
        lanes_[other].is_last = false;
        return *lane;
      }
    }
    return machine_.add_lane(call.device);
  }

  struct place {
    std::uint64_t number;  // of the lane
    bool is_last;
  };

  machine& machine_;
  executable& of_;
  std::shared_ptr<recording> start_ = std::make_shared<recording>();
  edges ends_;
  std::vector<place> lanes_;
};

}  // namespace

void add_to_capture(stream& s, std::function<std::vector<node>()> make) {
  capture& c = *s.part_of;
  c.calls.push_back({s.ends, std::move(make), s.device});
  s.ends = {c.calls.size() - 1};
}

void record_in_capture(event& e, const stream& s) {
  e.latest.reset();
  e.captured_in = s.part_of;
  e.ends = s.ends;
}

bool wait_in_capture(machine& m, stream& s, const event& e, cudaError_t& result) {
  if (!e.captured_in) {
    if (!s.part_of || !e.latest) return false;
    result = invalidate(m, *s.part_of, cudaErrorStreamCaptureIsolation,
                        "cudaStreamWaitEvent: a captured stream waits for what is not captured");
    return true;
  }
  if (e.captured_in->is_over) {
    m.find("cudaStreamWaitEvent: the event was recorded in a capture that has ended");
    result = cudaErrorCapturedEvent;
    return true;
  }
  if (s.part_of && s.part_of != e.captured_in) {
    s.part_of->is_invalid = true;
    result = invalidate(m, *e.captured_in, cudaErrorStreamCaptureMerge,
                        "cudaStreamWaitEvent: two captures would become one");
    return true;
  }
  s.part_of = e.captured_in;
  add_once(s.ends, e.ends);
  return true;
}

cudaError_t check_capture(machine& m, const std::string& call, const stream* s, const event* e) {
  if (s != nullptr && s->part_of) {
    return invalidate(m, *s->part_of, cudaErrorStreamCaptureUnsupported,
                      call + ": the stream is being captured");
  }
  if (e != nullptr && e->captured_in) {
    return invalidate(m, *e->captured_in, cudaErrorCapturedEvent,
                      call + ": the event was recorded in a capture");
  }
  for (const auto& c : graphs().captures) {
    if (!forbids(*c)) continue;
    return invalidate(m, *c, cudaErrorStreamCaptureUnsupported,
                      call + ": forbidden while a stream is being captured");
  }
  return cudaSuccess;
}

void leave_capture(machine& m, stream& s) {
  if (!s.part_of) return;
  const auto c = s.part_of;
  invalidate(m, *c, cudaErrorStreamCaptureInvalidated,
             "a stream is destroyed while it is captured");
  if (c->origin != &s) return;
  c->is_over = true;
  m.release_from(*c);
  std::erase(graphs().captures, c);
}

void reset_graphs() {
  graphs() = library();
}

std::uint64_t living_graphs() {
  return graphs().graphs.size() + graphs().executables.size();
}

}  // namespace zero::test::simulated

using namespace zero::test::simulated;

namespace {

/// Runs a function on the machine, unless a fault was planned for this call.
template <class Function>
cudaError_t call_for_graph(const char* name, Function function) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  const int fault = m.count_call(name);
  const auto result = fault != 0 ? static_cast<cudaError_t>(fault) : function(m);
  if (result != cudaSuccess) last_error_code() = result;
  return result;
}

}  // namespace

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call_for_graph("cudaStreamBeginCapture", [&](machine& m) {
    stream* const s = m.find_stream(handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (s->part_of) return cudaErrorIllegalState;
    auto c = std::make_shared<capture>();
    c->origin = s;
    c->mode = mode;
    c->thread = std::this_thread::get_id();
    s->part_of = c;
    s->ends.clear();
    graphs().captures.push_back(std::move(c));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* result) {
  return call_for_graph("cudaStreamEndCapture", [&](machine& m) {
    *result = nullptr;
    stream* const s = m.find_stream(handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (!s->part_of || s->part_of->origin != s) return cudaErrorStreamCaptureUnmatched;
    const auto c = s->part_of;
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    const bool was_joined = is_joined(*c);
    c->is_over = true;
    m.release_from(*c);
    std::erase(graphs().captures, c);
    if (c->is_invalid) return cudaErrorStreamCaptureInvalidated;
    if (!was_joined) {
      m.find("cudaStreamEndCapture: a stream took part and was not joined");
      return cudaErrorStreamCaptureUnjoined;
    }
    graphs().graphs.push_back(std::make_unique<graph>(graph{std::move(c->calls)}));
    *result = reinterpret_cast<cudaGraph_t>(graphs().graphs.back().get());
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call_for_graph("cudaStreamIsCapturing", [&](machine& m) {
    const stream* const s = m.find_stream(handle);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    *status = cudaStreamCaptureStatusNone;
    if (s->part_of) {
      *status = s->part_of->is_invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* result, cudaGraph_t handle, unsigned long long) {
  return call_for_graph("cudaGraphInstantiate", [&](machine&) {
    const graph* const g = find_in(graphs().graphs, handle);
    if (g == nullptr) return cudaErrorInvalidResourceHandle;
    auto& all = graphs().executables;
    all.push_back(std::make_unique<executable>(executable{g->calls, nullptr}));
    *result = reinterpret_cast<cudaGraphExec_t>(all.back().get());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t on) {
  return call_for_graph("cudaGraphLaunch", [&](machine& m) {
    executable* const e = find_in(graphs().executables, handle);
    stream* const s = m.find_stream(on);
    if (e == nullptr || s == nullptr) return cudaErrorInvalidResourceHandle;
    if (s->part_of) return check_capture(m, "cudaGraphLaunch", s);
    launched_graph(m, *e).enqueue(*s);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  return call_for_graph("cudaGraphExecDestroy", [&](machine&) {
    const auto erased = std::erase_if(graphs().executables, [&](const auto& owned) {
      return static_cast<const void*>(owned.get()) == static_cast<const void*>(handle);
    });
    return erased != 0 ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  return call_for_graph("cudaGraphDestroy", [&](machine&) {
    const auto erased = std::erase_if(graphs().graphs, [&](const auto& owned) {
      return static_cast<const void*>(owned.get()) == static_cast<const void*>(handle);
    });
    return erased != 0 ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

}  // extern "C"
