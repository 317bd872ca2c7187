// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/cuda_threads/session.hpp>
#include <zero/backends/cuda_threads/world.hpp>
#include <zero/communicator.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/collective_checks.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/error.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/range.hpp>

namespace zero {

/// One rank of a world whose ranks are threads of this process with work on CUDA devices.
///
/// Peers' buffers are read where they lie, by the fold kernel or by copies, so the results have the
/// bits of `threads`. Several ranks may share a device, which makes training over N ranks testable
/// on a single one. The order of collectives is always checked, as in `threads`. A rank that
/// destroys its communicator ends the world for its peers.
///
/// Collective: every operation but rank, size, abort, claim and unclaim; all ranks, same order, one
/// call at a time per rank. A call returns when all host threads have met; the device may not have
/// begun.
/// Stream: runs in a stream of its own, after what the queue holds at the call; `work.wait(queue)`
/// puts the rest of that queue after the result. Nothing waits for the device. A queue that is
/// being captured into a graph is refused.
/// Throws: aborted_error, mismatch_error, timeout_error; communicator_error with CUDA's text;
/// usage_error for wrong ranges and captured queues, before peers are involved.
class cuda_threads_communicator {
 public:
  using memory_space = cuda_space;
  using queue = cuda_queue;
  using work = detail::cuda_work<detail::cuda_threads_session>;

  static constexpr summation sums = summation::rank_tree;
  static constexpr std::string_view backend_name() noexcept { return "cuda_threads"; }

  /// Throws: usage_error when the rank does not exist or was taken before; cuda_error, and error
  /// for devices without peer access, which both end the world for its peers.
  cuda_threads_communicator(const cuda_threads_world& world, int rank)
      : cuda_threads_communicator(world.state_, rank) {}

  int rank() const noexcept { return session_->rank(); }
  int size() const noexcept { return session_->size(); }
  /// The CUDA device that this rank's buffers and queues belong to.
  int device() const noexcept { return session_->device(); }

  /// Ends every wait of every rank with an aborted_error that names this rank. Any thread, any
  /// number of times; the first reason is kept.
  void abort(std::string_view reason) noexcept { session_->host().abort(rank(), reason); }

  bool claim() noexcept { return session_->host().claim(rank()); }
  void unclaim() noexcept { session_->host().unclaim(rank()); }

  /// Rank r receives the sum over ranks of shard r, in rank_tree order, times options.scale.
  template <detail::SummableElement T, detail::SumOutputOf<T> U>
  work reduce_scatter(range<const T, partial, cuda_space> in, range<U, shard, cuda_space> out,
                      reduce_options options, queue on) {
    detail::check_full_and_shard(call_site("reduce_scatter"), in.data(), in.size(), out.data(),
                                 out.size());
    // Of every input this rank reads only shard `rank`, and it writes only `out`. In place, `out`
    // is that shard of its own input, which no peer reads.
    const auto own_shard = static_cast<std::uint64_t>(rank()) * out.size();
    return run(
        detail::describe_sum<T, U>(in.size(), options.scale), in.data(), on, 1,
        [&](std::uint64_t) {
          if (out.empty()) return;
          kernels::fold(cuda_space{}, session_->host().buffers<T>(rank(), own_shard), out.data(),
                        out.size(), options.scale, session_->stream());
        },
        nothing);
  }

  /// Every rank receives all shards, in rank order.
  template <detail::TransferableElement T>
  work all_gather(range<const T, shard, cuda_space> in, range<T, full, cuda_space> out, queue on) {
    detail::check_full_and_shard(call_site("all_gather"), out.data(), out.size(), in.data(),
                                 in.size());
    return run(
        detail::describe_call<T>("all_gather", out.size()), in.data(), on, 1,
        [&](std::uint64_t) {
          // Each rank starts with its own shard, so that not all of them read from one device.
          for (int i = 0; i < size(); ++i) {
            const int peer = (rank() + i) % size();
            copy(out.data() + static_cast<std::uint64_t>(peer) * in.size(),
                 static_cast<const T*>(session_->host().buffer(peer)), in.size());
          }
        },
        nothing);
  }

  /// The values are replaced by their sums over ranks, in rank_tree order.
  work all_reduce(range<double, full, cuda_space> values, queue on) {
    detail::check_values(call_site("all_reduce"), values.data(), values.size());
    constexpr std::uint64_t piece = detail::cuda_threads_session::scratch_elements;
    const auto count_of = [&](std::uint64_t i) {
      return std::min(piece, values.size() - i * piece);
    };
    return run(
        detail::describe_call<double>("all_reduce", values.size()), values.data(), on,
        values.size() / piece + 1,
        [&](std::uint64_t i) {
          if (count_of(i) == 0) return;
          kernels::fold(cuda_space{}, session_->host().buffers<double>(rank(), i * piece),
                        session_->scratch(), count_of(i), 1.0F, session_->stream());
        },
        // Every rank has read these values before any rank overwrites its own.
        [&](std::uint64_t i) {
          copy(values.data() + i * piece, static_cast<const double*>(session_->scratch()),
               count_of(i));
        });
  }

  /// Every rank receives rank `root`'s values.
  template <detail::TransferableElement T>
  work broadcast(range<T, full, cuda_space> values, int root, queue on) {
    detail::check_values(call_site("broadcast"), values.data(), values.size());
    detail::check_root(call_site("broadcast"), root);
    detail::collective_call call = detail::describe_call<T>("broadcast", values.size());
    call.root = root;
    return run(
        call, values.data(), on, 1,
        [&](std::uint64_t) {
          copy(values.data(), static_cast<const T*>(session_->host().buffer(root)), values.size());
        },
        nothing);
  }

  /// A communicator among the ranks that gave the same color, in rank order.
  ///
  /// It keeps this world's timeout and devices. An abort of this world reaches it, not the other
  /// way round.
  cuda_threads_communicator split(int color) {
    auto& host = session_->host();
    auto& shared = session_->shared();
    detail::collective_call call;
    call.operation = "split";
    host.color(rank()) = color;
    host.enter(rank(), call, nullptr);
    const auto part = host.part_of(rank());
    if (part.leader == rank()) found_offspring(color);
    host.meet();
    auto child = shared.offspring[static_cast<std::size_t>(part.leader)];
    host.meet();
    shared.offspring[static_cast<std::size_t>(rank())].reset();
    if (!child) throw error("zero::cuda_threads_communicator::split: out of memory");
    return {std::move(child), part.rank};
  }

 private:
  cuda_threads_communicator(std::shared_ptr<detail::cuda_threads_state> state, int rank)
      : session_(join(std::move(state), rank)) {}

  /// A rank that cannot take its place is one that the peers wait for in vain: they hear why.
  static std::unique_ptr<detail::cuda_threads_session> join(
      std::shared_ptr<detail::cuda_threads_state> state, int rank) {
    try {
      return std::make_unique<detail::cuda_threads_session>(state, rank);
    } catch (const usage_error&) {
      throw;  // a caller too many: the world is as it was
    } catch (const error& e) {
      state->host->abort(rank, e.what());
      throw;
    }
  }

  static void nothing(std::uint64_t) noexcept {}

  detail::checked_call call_site(std::string_view operation) const noexcept {
    return {backend_name(), rank(), size(), operation};
  }

  template <class Enqueue, class Finish>
  work run(const detail::collective_call& call, const void* buffer, queue on, std::uint64_t passes,
           Enqueue enqueue, Finish finish) {
    return {*session_, session_->run(call, buffer, on, passes, enqueue, finish)};
  }

  template <class T>
  void copy(T* to, const T* from, std::uint64_t count) const {
    if (count == 0 || to == from) return;
    detail::cuda_try(cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(T),
                                     cudaMemcpyDefault, session_->stream()),
                     "cudaMemcpyAsync");
  }

  /// A peer waits for the outcome, so a failure is left as a null pointer for all to see.
  void found_offspring(int color) noexcept {
    auto& shared = session_->shared();
    auto& child = shared.offspring[static_cast<std::size_t>(rank())];
    try {
      std::vector<int> devices;
      for (int peer = 0; peer < size(); ++peer) {
        if (session_->host().color(peer) != color) continue;
        devices.push_back(shared.devices[static_cast<std::size_t>(peer)]);
      }
      child = std::make_shared<detail::cuda_threads_state>(std::move(devices),
                                                           session_->host().timeout());
      session_->host().adopt(child->host);
    } catch (...) {
      child.reset();
    }
  }

  std::unique_ptr<detail::cuda_threads_session> session_;
};

static_assert(Communicator<cuda_threads_communicator, float>);
static_assert(Communicator<cuda_threads_communicator, bfloat16>);
static_assert(CanReduceScatter<cuda_threads_communicator, bfloat16, float>);
static_assert(CanAllGather<cuda_threads_communicator, std::uint16_t>);
static_assert(CanSplit<cuda_threads_communicator>);

}  // namespace zero
