// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/simulated_device/machine.hpp"

// Graphs of the simulated device; only its own sources include this.

namespace zero::test::simulated {

/// What a capture holds instead of one call: every launch makes its nodes anew.
struct captured_call {
  std::vector<std::size_t> after;  // the calls that it comes behind
  std::function<std::vector<node>()> make;
  int device = 0;
};

struct capture {
  stream* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;  // that began it
  bool is_invalid = false;
  bool is_over = false;
  std::vector<captured_call> calls;
};

/// Adds a call to the capture that the stream is part of.
void add_to_capture(stream& s, std::function<std::vector<node>()> make);
/// cudaEventRecord in a stream that is captured.
void record_in_capture(event& e, const stream& s);
/// cudaStreamWaitEvent where stream or event are captured; true: that was all of it.
bool wait_in_capture(machine& m, stream& s, const event& e, cudaError_t& result);
/// A stream that goes ends the capture that it began, and spoils one that it takes part in.
void leave_capture(machine& m, stream& s);
/// A call that nobody may make while a capture forbids it to the calling thread, or that may not
/// be made for this stream or event: ends the capture. Otherwise cudaSuccess.
cudaError_t check_capture(machine& m, const std::string& call, const stream* s = nullptr,
                          const event* e = nullptr);

}  // namespace zero::test::simulated
