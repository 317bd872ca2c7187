// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <zero/cuda/event.hpp>
#include <zero/cuda/pinned.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/cuda_try.hpp>
#include <zero/kernels/control.hpp>

namespace zero::detail {

/// Where the control blocks of the latest steps arrive on the host.
///
/// A step enqueues a copy to the next place and goes on; who asks for a report waits for that copy.
/// Made, and used, with the device current.
class cuda_reports {
 public:
  /// Steps that can be asked about.
  static constexpr std::uint64_t places = 16;

  cuda_reports() = default;
  cuda_reports(const cuda_reports&) = delete;
  cuda_reports& operator=(const cuda_reports&) = delete;
  /// The copies have to be done before the memory is gone. They are at the end of steps, which end
  /// by themselves or by an abort.
  ~cuda_reports() {
    for (place& p : places_) {
      if (p.sequence != 0) cudaEventSynchronize(p.arrived.get());
    }
    if (unmarked_ != nullptr) cudaStreamSynchronize(unmarked_);
  }

  /// Enqueues the copy of a step's control block. Returns the step's number here, from 1.
  std::uint64_t enqueue(const kernels::control_block* control, cuda_queue q) {
    place& p = at(++latest_);
    unmarked_ = q.stream();
    cuda_try(cudaMemcpyAsync(data(latest_), control, sizeof(*control), cudaMemcpyDeviceToHost,
                             q.stream()),
             "cudaMemcpyAsync");
    p.arrived.record(q);
    unmarked_ = nullptr;
    p.sequence = latest_;
    return latest_;
  }

  /// Whether a later step has taken the place of this one.
  bool is_overwritten(std::uint64_t sequence) const noexcept {
    return latest_ >= sequence + places;
  }
  const unique_cuda_event& arrived(std::uint64_t sequence) const noexcept {
    return places_[sequence % places].arrived;
  }
  /// Valid once it has arrived.
  const kernels::control_block& control(std::uint64_t sequence) const noexcept {
    return *data(sequence);
  }

 private:
  struct place {
    unique_cuda_event arrived;
    std::uint64_t sequence = 0;
  };
  place& at(std::uint64_t sequence) noexcept { return places_[sequence % places]; }
  kernels::control_block* data(std::uint64_t sequence) const noexcept {
    return blocks_.data() + sequence % places;
  }

  unique_cuda_pinned<kernels::control_block> blocks_{places};
  std::array<place, places> places_;
  std::uint64_t latest_ = 0;
  cudaStream_t unmarked_ = nullptr;  // where a copy may be whose mark has failed
};

}  // namespace zero::detail
