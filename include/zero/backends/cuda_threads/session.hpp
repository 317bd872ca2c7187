// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <zero/backends/cuda_threads/world.hpp>
#include <zero/cuda/device.hpp>
#include <zero/cuda/event.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/detail/cuda_try.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// What one rank of a cuda_threads world owns: a stream, its events, and a little device memory.
///
/// A collective goes like this on every rank r:
///   host     ready[r] is recorded in the user's queue, then all ranks meet and compare their calls
///   stream   waits on ready of the ranks that it reads from, reads, records read[r]
///   host     all ranks meet again, so that all have recorded
///   stream   waits on read of the ranks that read r's: from here on r's input is its own again
/// The user's queue takes part again by work.wait(). An event is recorded again only after a
/// meeting that follows the peers' waits on it, so two sets are enough.
class cuda_threads_session {
 public:
  using clock = cuda_operation::clock;

  /// Doubles that an all-reduce sums at a time.
  static constexpr std::uint64_t scratch_elements = threads_state::scratch_elements;

  /// Throws: cuda_error; usage_error when the rank does not exist or was taken before.
  cuda_threads_session(std::shared_ptr<cuda_threads_state> state, int rank)
      : state_(std::move(state)),
        rank_(checked(*state_, rank)),
        guard_(std::make_unique<cuda_device_guard>(device())) {
    for (const int peer : state_->devices) enable_peer_access(device(), peer);
    void* scratch = nullptr;
    cuda_try(cudaMalloc(&scratch, scratch_elements * sizeof(double)), "cudaMalloc");
    scratch_.reset(static_cast<double*>(scratch));
    if (!host().join(rank)) {
      throw usage_error("zero::cuda_threads_communicator: rank " + std::to_string(rank) +
                        " of a world of " + std::to_string(size()) + " was taken before");
    }
    has_joined_ = true;
    events_of(rank).ready.emplace();
    events_of(rank).read.emplace();
    guard_.reset();
  }
  cuda_threads_session(const cuda_threads_session&) = delete;
  cuda_threads_session& operator=(const cuda_threads_session&) = delete;
  /// What is in the stream still runs; CUDA keeps streams and events until then.
  ~cuda_threads_session() {
    if (has_joined_) host().depart(rank_);
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return state_->host->size(); }
  int device() const noexcept { return state_->devices[static_cast<std::size_t>(rank_)]; }
  threads_state& host() const noexcept { return *state_->host; }
  cuda_threads_state& shared() const noexcept { return *state_; }
  cudaStream_t stream() const noexcept { return stream_.get(); }
  double* scratch() const noexcept { return scratch_.get(); }

  /// One collective. `passes` times, `enqueue(i)` puts reads of the peers' buffers into the stream;
  /// after each, `finish(i)` puts in what has to wait until all ranks have read.
  /// Returns the sequence number for the handle.
  template <class Enqueue, class Finish>
  std::uint64_t run(const collective_call& call, const void* buffer, cuda_queue queue,
                    std::uint64_t passes, Enqueue enqueue, Finish finish) {
    const cuda_device_guard guard(device());
    cuda_operation operation{call.operation, host().next_sequence(rank_), clock::now(), {}};
    operation.deadline = operation.start + host().timeout();
    bool is_refused = false;
    attempt([&] {
      is_refused = is_capturing(queue);
      if (!is_refused) events_of(rank_).ready->record(queue);
    });
    if (is_refused) refuse_capture(operation);
    throw_problem_of(operation);
    host().enter(rank_, call, buffer);
    bool is_whole = true;
    for (std::uint64_t i = 0; i < passes; ++i) {
      // A peer must not record again what another one has not waited for yet.
      if (i > 0) host().meet();
      attempt([&] {
        if (i == 0) hold_for_inputs(call.root);
        enqueue(i);
        events_of(rank_).read->record(stream_);
      });
      if (!problem_.empty()) mark_read_anyway();
      is_whole = host().meet();
      attempt([&] {
        hold_for_readers(call.root);
        finish(i);
      });
    }
    auto& slot = ring_.at(operation.sequence);
    slot.operation = operation;
    attempt([&] { slot.done.record(stream_); });
    if (!is_whole || !problem_.empty()) await_readers(operation.deadline);
    throw_problem_of(operation);
    if (!is_whole) host().throw_abort(rank_, call, operation.start);
    return operation.sequence;
  }

  // What the handle calls.

  void hold(std::uint64_t sequence, cuda_queue queue) {
    auto& slot = ring_.at(sequence);
    attempt([&] { held_.hold_once(sequence, queue, [&] { slot.done.hold(queue); }); });
    throw_problem_of(slot.operation);
  }

  /// Also where a peer has failed: what was put into the streams still ends by itself, and until
  /// then it uses the buffers.
  void drain(std::uint64_t sequence) noexcept {
    auto& slot = ring_.at(sequence);
    const bool is_in_time = poll_until(slot.operation.deadline, [&] {
      bool is_done = false;
      attempt([&] { is_done = slot.done.is_done(); });
      return is_done || !problem_.empty();
    });
    if (!is_in_time) note_problem("a handle that was dropped waited for the device in vain");
  }

 private:
  struct free_memory {
    void operator()(double* pointer) const noexcept { cudaFree(pointer); }
  };

  static int checked(const cuda_threads_state& state, int rank) {
    if (rank < 0 || rank >= state.host->size()) {
      throw usage_error("zero::cuda_threads_communicator: rank " + std::to_string(rank) +
                        " does not exist in a world of " + std::to_string(state.host->size()));
    }
    return rank;
  }

  /// Ranks of one process cannot be captured one by one: a wait on an event that another thread
  /// records in its own capture would merge the two captures.
  [[noreturn]] void refuse_capture(const cuda_operation& operation) const {
    throw usage_error("cuda_threads rank " + std::to_string(rank_) + ", " +
                      std::string(operation.name) +
                      ": the queue is being captured into a graph, which this backend cannot take "
                      "part in; capture with nccl, or run eagerly");
  }

  // Waits that cannot matter are left out: a test takes away each of those that are there, and sees
  // it go wrong. `root` is the one rank whose buffer is read, -1 where all are.

  void hold_for_inputs(int root) const {
    if (root == rank_) return;  // it neither reads nor writes
    for (int peer = 0; peer < size(); ++peer) {
      const bool is_used = root < 0 || peer == root || peer == rank_;
      if (is_used) events_of(peer).ready->hold(stream_);
    }
  }

  void hold_for_readers(int root) const {
    if (root >= 0 && root != rank_) return;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank_) events_of(peer).read->hold(stream_);
    }
  }

  cuda_threads_state::rank_events& events_of(int rank) const noexcept {
    return state_->events[static_cast<std::size_t>(rank)];
  }

  /// What was enqueued before the failure may read the peers' buffers.
  void mark_read_anyway() noexcept {
    try {
      events_of(rank_).read->record(stream_);
    } catch (const error&) {  // NOLINT: the failure is on its way already
    }
  }

  /// A call that throws gives its buffers back, too: the host waits until nobody reads them.
  void await_readers(clock::time_point deadline) noexcept {
    poll_until(deadline, [&] {
      for (const auto& events : state_->events) {
        if (cudaEventQuery(events.read->get()) == cudaErrorNotReady) return false;
      }
      return cudaStreamQuery(stream_.get()) != cudaErrorNotReady;
    });
  }

  /// Between the two meetings nothing may leave a rank alone, so what goes wrong is kept, and the
  /// world is aborted for the peers to see after they have met.
  template <class Function>
  void attempt(Function function) noexcept {
    if (!problem_.empty()) return;
    try {
      function();
    } catch (const std::exception& e) {
      note_problem(e.what());
    } catch (...) {
      note_problem("an exception that is not a std::exception");
    }
  }

  void note_problem(const char* what) noexcept {
    try {
      problem_ = what;
    } catch (...) {
      problem_ = "no memory";
    }
    host().abort(rank_, problem_);
  }

  void throw_problem_of(const cuda_operation& operation) const {
    if (problem_.empty()) return;
    throw communicator_error(problem_, operation.where("cuda_threads", rank_));
  }

  std::shared_ptr<cuda_threads_state> state_;
  int rank_;
  // Streams, events and memory below belong to the device that is current while they are made.
  std::unique_ptr<cuda_device_guard> guard_;
  unique_cuda_stream stream_{cuda_priority::highest};
  cuda_operation_ring ring_;
  cuda_held_stream held_;
  std::unique_ptr<double, free_memory> scratch_;
  bool has_joined_ = false;
  std::string problem_;  // what this rank failed by, empty as long as it did not
};

}  // namespace zero::detail
