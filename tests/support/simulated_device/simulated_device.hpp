// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

// A machine with CUDA devices and NCCL that exists at link time only: the functions of the CUDA
// runtime and of NCCL that the library calls, on host memory, against the real headers.
//
// It proves ordering and host logic: streams are queues, events are edges, and a seeded scheduler
// runs whichever runnable head it likes, so an order that is merely likely on a real device is not
// relied upon. It proves nothing about NCCL, about hardware, or about speed.
//
// Work runs when a host thread waits, polls or, sometimes, enqueues. A wait that nothing can fulfil
// ends with an error and a text in findings(), not with a hang.

namespace zero::test {

struct simulated_device_options {
  std::uint64_t seed = 0;
  /// What cudaGetDeviceCount reports; 0 makes it fail as a machine without a driver does.
  int devices = 1;
  /// How long a wait with nothing to run waits for another host thread before it is a deadlock.
  std::chrono::milliseconds patience{0};
  /// NCCL sums in rank_tree order and rounds once. False: in a seeded order that starts at any
  /// rank and rounds after each addition, as a ring does.
  bool nccl_sums_as_tree = true;
  /// What ncclGetVersion reports; 0: the version of the header.
  int nccl_version = 0;
};

/// One fault: the call of `function` with this number, counted from 0, returns `code`.
struct simulated_fault {
  std::string function;
  std::uint64_t call = 0;
  int code = 0;
  int host_thread = -1;  ///< counts the calls of this thread only (name_host_thread); -1: of all
  /// From that call on every call of the CUDA runtime returns `code`, as after a kernel that
  /// failed.
  bool lasts = false;
};

/// The machine: while one exists, the CUDA and NCCL functions work, on it. One at a time.
class simulated_device {
 public:
  explicit simulated_device(simulated_device_options options = {});
  ~simulated_device();
  simulated_device(const simulated_device&) = delete;
  simulated_device& operator=(const simulated_device&) = delete;

  /// Gives the calling host thread a number, so that a fault can mean the calls of one rank.
  static void name_host_thread(int number);

  void fail(simulated_fault fault);
  /// That call of the CUDA runtime, which is no launch, does not return before go_on().
  void stall(const std::string& function, std::uint64_t call, int host_thread);
  void go_on();
  /// The cudaStreamWaitEvent with this number succeeds and does nothing.
  void drop_wait(std::uint64_t call, int host_thread = -1);
  /// The same for the waits of one stream.
  void drop_wait_in(const void* stream, std::uint64_t call);
  std::uint64_t waits_in(const void* stream) const;
  /// cudaStreamWaitEvent calls so far, of one host thread or of all.
  std::uint64_t waits(int host_thread = -1) const;
  /// Calls so far, by function, of one host thread or of all.
  std::map<std::string, std::uint64_t> calls(int host_thread = -1) const;
  /// Calls that returned a planned fault.
  std::uint64_t faults_met() const;
  /// What was made and is still there, by the function that makes it.
  std::map<std::string, std::uint64_t> alive() const;
  /// NCCL's rank `rank` never arrives at the collective with this number on its communicator.
  void never_arrives(int rank, std::uint64_t sequence);
  /// ncclCommGetAsyncError reports `code` on rank `rank` once that collective was enqueued.
  void asynchronous_error(int rank, std::uint64_t sequence, int code);

  /// A hash of the order in which nodes ran.
  std::uint64_t order() const;
  std::uint64_t nodes_run() const;
  /// What a real machine would not forgive: deadlocks, calls on busy communicators, leaks, ...
  std::vector<std::string> findings() const;
};

namespace detail {
/// The copy of a kernel's argument and what runs it on the host.
using kernel_body = std::function<void(const void* argument, std::uint64_t threads)>;
void add_kernel(const void* stub, std::size_t argument_bytes, kernel_body body);

/// Calls `body.run(thread, threads)` for every thread.
template <class Body>
kernel_body body_of() {
  static_assert(std::is_trivially_copyable_v<Body>);
  return [](const void* argument, std::uint64_t threads) {
    const Body& body = *static_cast<const Body*>(argument);
    for (std::uint64_t i = 0; i < threads; ++i) body.run(i, threads);
  };
}
}  // namespace detail

/// Says what a launch of a kernel with one argument does, by the address of its host stub: what
/// body_of() says, when the scheduler comes to it. Kernels of nvcc: device_code.hpp.
template <class Body>
void simulate_kernel(void (*stub)(Body)) {
  detail::add_kernel(reinterpret_cast<const void*>(stub), sizeof(Body), detail::body_of<Body>());
}

}  // namespace zero::test
