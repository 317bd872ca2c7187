// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/simulated_device/simulated_device.hpp"

// The inside of the simulated device; only its own sources include this.

namespace zero::test::simulated {

/// One cudaEventRecord: what a later wait refers to, whatever the event is used for afterwards.
struct recording {
  bool is_done = false;
};

struct node {
  std::string name;
  std::function<bool()> is_ready;  // empty: as soon as it is at the head
  std::function<void()> run;       // empty: an edge only
  const void* owner = nullptr;     // the communicator whose abort ends it
};

struct capture;  // graph.hpp

struct stream {
  int device = 0;
  std::uint64_t number = 0;
  std::uint64_t priority = 0;  // the scheduler's whim: it often runs the highest, and changes it
  std::uint64_t enqueued = 0;
  std::uint64_t ran = 0;
  std::uint64_t waits = 0;               // that were enqueued
  std::set<std::uint64_t> dropped = {};  // those of them that do nothing
  std::deque<node> nodes;
  bool is_lane = false;                   // of a graph that was launched: goes when it is empty
  std::shared_ptr<capture> part_of = {};  // while it is captured
  std::vector<std::size_t> ends = {};     // the captured calls that its next one comes behind
};

struct event {
  int device = 0;
  std::shared_ptr<recording> latest;
  std::shared_ptr<capture> captured_in;  // where it was recorded in a capture; no recording then
  std::vector<std::size_t> ends = {};
};

/// Everything that the functions share. Every member needs the lock.
class machine {
 public:
  static machine& instance();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  void start(const simulated_device_options& options);
  void stop();
  bool is_on() const { return is_on_; }
  const simulated_device_options& options() const { return options_; }

  /// Counts a call; the code of the fault that was planned for it, 0 for none.
  int count_call(std::string_view function);
  /// The code of a fault that keeps its call from returning.
  static constexpr int stalls = -1;
  /// Returns when go_on() was called.
  void stay(std::unique_lock<std::mutex>& lock);
  void go_on();
  std::uint64_t calls(const std::string& function, int host_thread) const;
  std::map<std::string, std::uint64_t> calls(int host_thread) const;
  std::uint64_t faults_met() const { return faults_met_; }
  std::map<std::string, std::uint64_t> alive() const;
  void plan(simulated_fault fault) { faults_.push_back(std::move(fault)); }

  stream* add_stream(int device);
  /// Null for a handle that is not a stream of this machine.
  stream* find_stream(const void* handle);
  void remove_stream(stream* s);
  event* add_event(int device);
  event* find_event(const void* handle);
  void remove_event(event* e);

  stream& add_lane(int device);
  /// Null when it is empty, and gone.
  stream* find_lane(std::uint64_t number);
  /// The streams of a capture that has ended.
  void release_from(const capture& c);

  /// To run, or into the capture that the stream is part of. The device may make some progress.
  void enqueue(stream& s, node n);
  /// To run; the device makes none.
  void push(stream& s, node n);
  /// Runs one runnable head, chosen by the seed. False when there is none.
  bool step();
  /// Up to a few steps, or none.
  void take_some_steps();
  /// For calls that look without waiting: who polls sees progress however lazy the device is.
  void look();
  /// Runs nodes until all is done that the streams of a device hold now. Returns as drive().
  bool drain(std::unique_lock<std::mutex>& lock, int device, const std::string& what);
  /// Runs nodes until `is_fulfilled`. False: a deadlock, which was noted as a finding.
  bool drive(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_fulfilled,
             const std::string& what);
  void drop_nodes_of(const void* owner);
  bool has_nodes_of(const void* owner) const;
  /// Whether the bytes lie in memory from cudaMallocHost.
  bool is_pinned(const void* begin, std::size_t bytes) const;
  /// Another host thread may have to look again.
  void note_change() { changed_.notify_all(); }

  void find(std::string text) { findings_.push_back(std::move(text)); }
  const std::vector<std::string>& findings() const { return findings_; }
  std::uint64_t random(std::uint64_t below);
  std::uint64_t order() const { return order_; }
  std::uint64_t nodes_run() const { return nodes_run_; }

  std::map<void*, int> allocations;                           // address, device
  std::map<void*, std::size_t> pinned;                        // address, bytes
  std::set<std::pair<int, std::uint64_t>> absent;             // rank, sequence
  std::map<std::pair<int, std::uint64_t>, int> async_errors;  // rank, sequence -> code

 private:
  std::string describe_heads() const;
  /// Whether a fault that lasts has begun for the calling thread.
  bool lasts_for(const simulated_fault& fault, std::string_view function) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_on_ = false;
  simulated_device_options options_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<stream>> streams_;  // in order of creation: seeds repeat
  std::vector<std::unique_ptr<event>> events_;
  std::uint64_t streams_made_ = 0;
  std::uint64_t looks_ = 0;
  std::uint64_t laziness_ = 0;  // 0: a device that keeps up with its host; 16: far behind
  std::map<std::pair<std::string, int>, std::uint64_t> calls_;  // function, host thread
  std::vector<simulated_fault> faults_;
  std::uint64_t faults_met_ = 0;
  bool goes_on_ = false;
  std::vector<std::string> findings_;
  std::uint64_t order_ = 0;
  std::uint64_t nodes_run_ = 0;
};

/// What name_host_thread said; -1 for others.
int& host_thread_number();

/// What cudaSetDevice said.
int& current_device();

/// What cudaGetLastError returns to the calling thread: a launch leaves its error there only.
int& last_error_code();

/// Lets NCCL's part forget its communicators; called by stop().
void reset_nccl();
/// The same for captures and graphs, and how many of these were not destroyed.
void reset_graphs();
std::uint64_t living_graphs();
/// Communicators that were neither destroyed nor aborted.
std::uint64_t living_communicators();

}  // namespace zero::test::simulated
