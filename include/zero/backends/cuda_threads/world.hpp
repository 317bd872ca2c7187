// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/cuda/device.hpp>
#include <zero/cuda/event.hpp>
#include <zero/detail/threads_state.hpp>
#include <zero/error.hpp>
#include <zero/kernels/fold.hpp>

namespace zero {

/// Settings of a world of threads on CUDA devices.
struct cuda_threads_options {
  /// How long a rank waits for its peers in one collective before it throws timeout_error.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);

  /// The device of each rank; one entry is for all ranks. Different devices need peer access.
  std::vector<int> devices = {0};
};

namespace detail {

/// What the ranks of one world share: the meeting of the host threads, and each rank's events.
struct cuda_threads_state {
  /// Two sets, because a rank records the second while peers may still have to wait on the first.
  /// They live as long as the world: a peer may wait on them after their rank has left.
  struct rank_events {
    std::optional<unique_cuda_event> ready;  ///< the rank's input may be read
    std::optional<unique_cuda_event> read;   ///< this rank has read the inputs of all
  };

  cuda_threads_state(std::vector<int> rank_devices, std::chrono::nanoseconds timeout)
      : host(std::make_shared<threads_state>(static_cast<int>(rank_devices.size()), timeout,
                                             "cuda_threads")),
        devices(std::move(rank_devices)),
        events(devices.size()),
        offspring(devices.size()) {}

  std::shared_ptr<threads_state> host;
  std::vector<int> devices;
  /// A rank writes its own before its first meeting, and peers read them after one.
  std::vector<rank_events> events;
  std::vector<std::shared_ptr<cuda_threads_state>> offspring;  // of a split, by leader
};

/// Lets `device` read the memory of `peer`.
inline void enable_peer_access(int device, int peer) {
  if (device == peer) return;
  int is_possible = 0;
  cuda_try(cudaDeviceCanAccessPeer(&is_possible, device, peer), "cudaDeviceCanAccessPeer");
  if (is_possible == 0) {
    throw error("zero::cuda_threads_communicator: device " + std::to_string(device) +
                " cannot read the memory of device " + std::to_string(peer) +
                ": there is no peer access between them");
  }
  const cuda_device_guard guard(device);
  const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
  if (result == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // it is no error here, so the next launch must not find it
    return;
  }
  cuda_try(result, "cudaDeviceEnablePeerAccess");
}

}  // namespace detail

/// The ranks of one process that are threads with work on CUDA devices.
///
/// Copies refer to the same world.
class cuda_threads_world {
 public:
  /// Throws: usage_error for a size that is not between 1 and max_device_fold_inputs, a timeout
  /// that is not positive, or another number of devices than 1 or `size`.
  explicit cuda_threads_world(int size, const cuda_threads_options& options = {})
      : state_(make(size, options)) {}

  int size() const noexcept { return state_->host->size(); }

  /// Ends every wait in this world and in the worlds split from it with an aborted_error that
  /// carries `reason`. Any thread; only the first reason is kept.
  void abort(std::string_view reason) noexcept { state_->host->abort(-1, reason); }

 private:
  friend class cuda_threads_communicator;

  static std::shared_ptr<detail::cuda_threads_state> make(int size,
                                                          const cuda_threads_options& options) {
    const auto refuse = [](const std::string& what) {
      throw usage_error("zero::cuda_threads_world: " + what);
    };
    constexpr auto most = static_cast<int>(kernels::max_device_fold_inputs);
    if (size < 1 || size > most) {
      refuse("size " + std::to_string(size) + " is not between 1 and " + std::to_string(most));
    }
    if (options.timeout <= std::chrono::nanoseconds::zero()) {
      refuse("timeout of " + std::to_string(options.timeout.count()) + " ns is not positive");
    }
    std::vector<int> devices = options.devices;
    if (devices.size() == 1) devices.resize(static_cast<std::size_t>(size), devices.front());
    if (devices.size() != static_cast<std::size_t>(size)) {
      refuse(std::to_string(devices.size()) + " devices for " + std::to_string(size) +
             " ranks; give one for all, or one for each");
    }
    // A deadline has to be representable; nobody waits for ten years.
    const std::chrono::nanoseconds longest = std::chrono::hours(24 * 3650);
    const auto timeout = options.timeout < longest ? options.timeout : longest;
    return std::make_shared<detail::cuda_threads_state>(std::move(devices), timeout);
  }

  std::shared_ptr<detail::cuda_threads_state> state_;
};

}  // namespace zero
