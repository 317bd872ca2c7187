// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>

#include <zero/communicator.hpp>
#include <zero/cuda/device.hpp>
#include <zero/cuda/event.hpp>
#include <zero/cuda/memory.hpp>
#include <zero/cuda/pinned.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/detail/cuda_try.hpp>
#include <zero/detail/executor.hpp>
#include <zero/kernels/cast.hpp>
#include <zero/range.hpp>

namespace zero::detail {

/// The work of an engine on the memory of one device: everything is enqueued in the caller's
/// stream.
template <>
class executor<cuda_space> {
 public:
  /// Takes the device of the communicator. Throws: cuda_error.
  template <HasTopology C>
  explicit executor(C& communicator) : memory_(communicator.device()) {
    if constexpr (requires { communicator.check(); }) {
      check_ = [&communicator] { communicator.check(); };
    }
    const cuda_device_guard guard(device());
    own_.emplace();
  }
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;

  int device() const noexcept { return memory_.device(); }
  /// Where an arena comes from by default.
  memory_resource& memory() noexcept { return memory_; }

  template <class T>
  void fill_zero(T* values, std::uint64_t count, cuda_queue q) const {
    if (count == 0) return;
    const cuda_device_guard guard(device());
    cuda_try(cudaMemsetAsync(values, 0, static_cast<std::size_t>(count) * sizeof(T), q.stream()),
             "cudaMemsetAsync");
  }
  template <class A, class B>
  void convert(const A* input, B* output, std::uint64_t count, cuda_queue q) const {
    const cuda_device_guard guard(device());
    if constexpr (std::is_same_v<A, B>) {
      copy(input, output, count, cudaMemcpyDeviceToDevice, q);
    } else {
      kernels::convert(cuda_space{}, input, output, count, q.stream());
    }
  }
  template <class G, class A>
  void accumulate(const G* input, A* sums, std::uint64_t count, cuda_queue q) const {
    const cuda_device_guard guard(device());
    kernels::accumulate(cuda_space{}, input, sums, count, q.stream());
  }

  /// From the host; `values` may change again when it returns: CUDA stages what is not pinned.
  template <class T>
  void upload(const T* values, T* there, std::uint64_t count, cuda_queue q) const {
    const cuda_device_guard guard(device());
    copy(values, there, count, cudaMemcpyHostToDevice, q);
  }

  /// To the host; waits for the values.
  /// Throws: what went wrong with the communicator meanwhile; cuda_error.
  template <class T>
  void download(const T* there, T* values, std::uint64_t count, cuda_queue q) {
    static_assert(std::is_trivially_copyable_v<T>);
    const cuda_device_guard guard(device());
    constexpr std::uint64_t piece = staging_bytes / sizeof(T);
    for (std::uint64_t first = 0; first < count; first += piece) {
      const std::uint64_t length = std::min(piece, count - first);
      cuda_try(cudaMemcpyAsync(own_->staging.data(), there + first,
                               static_cast<std::size_t>(length) * sizeof(T), cudaMemcpyDeviceToHost,
                               q.stream()),
               "cudaMemcpyAsync");
      synchronize(q);
      std::memcpy(values + first, own_->staging.data(),
                  static_cast<std::size_t>(length) * sizeof(T));
    }
  }

  /// What follows in `after` runs after all that `before` holds.
  void follow(cuda_queue before, cuda_queue after) {
    if (before.stream() == after.stream()) return;
    const cuda_device_guard guard(device());
    own_->handover.record(before);
    own_->handover.hold(after);
  }

  /// Blocks the host until all that the queue holds is done.
  /// Throws: what went wrong with the communicator meanwhile; cuda_error.
  void synchronize(cuda_queue q) {
    own_->done.record(q);
    await(own_->done);
  }

  /// Blocks the host until the event is done, or throws as synchronize() does.
  void await(const unique_cuda_event& event) const {
    if (!check_) {
      event.synchronize();
      return;
    }
    while (!event.is_done()) {
      check();
      poll_until(cuda_operation::clock::now() + std::chrono::milliseconds(100),
                 [&] { return event.is_done(); });
    }
    // An abort ends the kernels of a collective, and with them what waits for it.
    check();
  }

  /// Throws: what went wrong with the communicator, as far as it can tell.
  void check() const {
    if (check_) check_();
  }

  /// A step that is captured into a graph leaves nothing pending: the graph ends with it.
  template <class Wait>
  void finish_step(cuda_queue q, Wait wait_for_gathers) const {
    if (is_capturing(q)) wait_for_gathers();
  }

  /// Host values as an operand of a collective: a copy in device memory.
  template <class T>
  class mirror {
   public:
    /// Throws: cuda_error.
    mirror(executor& on, std::span<T> values) : executor_(on), values_(values) {
      if (bytes() != 0) data_ = static_cast<T*>(on.memory().allocate(bytes(), arena_alignment));
    }
    mirror(const mirror&) = delete;
    mirror& operator=(const mirror&) = delete;
    ~mirror() {
      if (data_ != nullptr) executor_.memory().deallocate(data_, bytes(), arena_alignment);
    }

    T* data() const noexcept { return data_; }
    /// The first `count` values, host to operand.
    void upload(std::uint64_t count, cuda_queue q) const {
      executor_.upload(static_cast<const T*>(values_.data()), data_, count, q);
    }
    /// The first `count` values, operand to host; waits for them.
    void download(std::uint64_t count, cuda_queue q) const {
      executor_.download(static_cast<const T*>(data_), values_.data(), count, q);
    }

   private:
    static constexpr std::uint64_t arena_alignment = 64;
    std::uint64_t bytes() const noexcept { return values_.size() * sizeof(T); }

    executor& executor_;
    std::span<T> values_;
    T* data_ = nullptr;
  };

 private:
  static constexpr std::uint64_t staging_bytes = std::uint64_t{64} << 10U;

  /// What is made while the device is current.
  struct device_objects {
    device_objects() : staging(staging_bytes) {}
    unique_cuda_pinned<std::byte> staging;
    unique_cuda_event handover;
    unique_cuda_event done;
  };

  template <class T>
  static void copy(const T* from, T* to, std::uint64_t count, cudaMemcpyKind kind, cuda_queue q) {
    if (count == 0) return;
    cuda_try(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T), kind, q.stream()),
        "cudaMemcpyAsync");
  }

  cuda_memory memory_;
  std::function<void()> check_;
  std::optional<device_objects> own_;
};

}  // namespace zero::detail
