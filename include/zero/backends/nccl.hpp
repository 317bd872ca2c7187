// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <zero/backends/nccl/connect.hpp>
#include <zero/backends/nccl/library.hpp>
#include <zero/backends/nccl/options.hpp>
#include <zero/backends/nccl/session.hpp>
#include <zero/communicator.hpp>
#include <zero/cuda/queue.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/collective_checks.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/error.hpp>
#include <zero/range.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

/// One rank of a world of processes, or threads, with one CUDA device each, connected by NCCL.
///
/// Host-only: it needs the CUDA runtime and NCCL 2.18.1 or newer, not nvcc. NCCL sums in an order
/// of its own and rounds on the way, so results are not bitwise those of other backends.
///
/// A thread per communicator watches for errors, deadlines and peers that gave up; what it finds
/// ends the kernels of NCCL, so that streams and hosts go on, and every later collective throws.
/// The error names the oldest collective that the device had not finished, whoever finds it; what
/// was done before stays good, and waits for that do not throw. Who waits for a stream on the host
/// calls `synchronize`, which throws what a bare cudaStreamSynchronize would hide.
///
/// A call that throws returns the buffers of all collectives, as soon as NCCL has let go of them.
/// The destructor lets what is in the stream come to its end, by its deadline.
///
/// Collective: every operation but rank, size, device, synchronize, abort, claim and unclaim; all
/// ranks, same order, one call at a time per rank, and no NCCL calls on the same device meanwhile.
/// A call returns when NCCL has enqueued it.
/// Stream: runs in a stream of its own, after what the queue holds at the call; `work.wait(queue)`
/// puts the rest of that queue after the result. Nothing waits for the device, and a queue that is
/// being captured into a graph takes the collective into the graph.
/// Throws: aborted_error, mismatch_error (with checked_order), timeout_error; communicator_error
/// with the text of NCCL or CUDA on the rank where it was seen first; usage_error for wrong ranges,
/// before peers are involved.
class nccl_communicator {
 public:
  using memory_space = cuda_space;
  using queue = cuda_queue;
  using work = detail::cuda_work<detail::nccl_session>;

  static constexpr summation sums = summation::unspecified;
  static constexpr std::string_view backend_name() noexcept { return "nccl"; }

  /// Meets the other ranks in `store` and takes the current device of the calling thread.
  ///
  /// A store that is not copied, as any_store and memory_store are, has to outlive the communicator
  /// and its parts.
  /// Collective: all ranks, in the same order where several communicators use one store.
  /// Throws: usage_error for a wrong rank or option; nccl_error without a GPU, and for an NCCL that
  /// is too old; timeout_error that names the ranks that did not come before setup_timeout;
  /// aborted_error where a peer failed; communicator_error with NCCL's text; rendezvous_error.
  template <Store S>
  nccl_communicator(S& store, int rank, int size, const nccl_options& options = {})
      : session_(detail::nccl_connector(shared(store), rank, size, options).connect()) {}

  int rank() const noexcept { return session_->rank(); }
  int size() const noexcept { return session_->size(); }
  /// The CUDA device that this rank's buffers and queues belong to.
  int device() const noexcept { return session_->device(); }

  /// Ends what is in flight on every rank, here and in the parts split from it. Any thread, any
  /// number of times; the first reason is kept. Never blocks: peers learn of it within about two
  /// watch intervals, and have a second to finish what this rank has finished.
  void abort(std::string_view reason) noexcept { session_->abort(reason); }

  bool claim() noexcept { return session_->claim(); }
  void unclaim() noexcept { session_->unclaim(); }

  /// Blocks the host until all that the queue holds is done.
  /// Throws: what a collective of this communicator or of its parts was lost by, named after that
  /// collective; timeout_error after its timeout.
  void synchronize(queue on) { session_->synchronize(on); }

  /// Any time, without waiting: for who waits for the device in a way of his own.
  /// Throws: what went wrong with this communicator, where something was lost by it.
  void check() { session_->check(); }

  /// Rank r receives the sum over ranks of shard r.
  ///
  /// Where options.scale is not 1, each input is multiplied by it, rounded to T, before the sum,
  /// and the scale itself is rounded to T: the sum cannot overflow where the mean fits, and
  /// contributions below N x the smallest subnormal may vanish.
  template <detail::SummableElement T>
  work reduce_scatter(range<const T, partial, cuda_space> in, range<T, shard, cuda_space> out,
                      reduce_options options, queue on) {
    detail::check_full_and_shard(call_site("reduce_scatter"), in.data(), in.size(), out.data(),
                                 out.size());
    return issue(
        detail::describe_sum<T, T>(in.size(), options.scale), "ncclReduceScatter", on,
        [&](ncclComm_t comm, cudaStream_t stream) {
          const auto count = static_cast<std::size_t>(out.size());
          constexpr auto type = detail::nccl_element<T>::type;
          if (options.scale == 1.0F) {
            return ncclReduceScatter(in.data(), out.data(), count, type, ncclSum, comm, stream);
          }
          const detail::nccl_scaled_sum<T> scaled(T(options.scale), comm);
          if (scaled.result() != ncclSuccess) return scaled.result();
          return ncclReduceScatter(in.data(), out.data(), count, type, scaled.get(), comm, stream);
        });
  }

  /// Every rank receives all shards, in rank order.
  template <detail::TransferableElement T>
  work all_gather(range<const T, shard, cuda_space> in, range<T, full, cuda_space> out, queue on) {
    detail::check_full_and_shard(call_site("all_gather"), out.data(), out.size(), in.data(),
                                 in.size());
    return issue(detail::describe_call<T>("all_gather", out.size()), "ncclAllGather", on,
                 [&](ncclComm_t comm, cudaStream_t stream) {
                   return ncclAllGather(in.data(), out.data(), units<T>(in.size()),
                                        detail::nccl_element<T>::type, comm, stream);
                 });
  }

  /// The values are replaced by their sums over ranks.
  work all_reduce(range<double, full, cuda_space> values, queue on) {
    detail::check_values(call_site("all_reduce"), values.data(), values.size());
    return issue(detail::describe_call<double>("all_reduce", values.size()), "ncclAllReduce", on,
                 [&](ncclComm_t comm, cudaStream_t stream) {
                   return ncclAllReduce(values.data(), values.data(), units<double>(values.size()),
                                        ncclFloat64, ncclSum, comm, stream);
                 });
  }

  /// Every rank receives rank `root`'s values.
  template <detail::TransferableElement T>
  work broadcast(range<T, full, cuda_space> values, int root, queue on) {
    detail::check_values(call_site("broadcast"), values.data(), values.size());
    detail::check_root(call_site("broadcast"), root);
    detail::collective_call call = detail::describe_call<T>("broadcast", values.size());
    call.root = root;
    return issue(call, "ncclBroadcast", on, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(values.data(), values.data(), units<T>(values.size()),
                           detail::nccl_element<T>::type, root, comm, stream);
    });
  }

  /// A communicator among the ranks that gave the same color, in rank order, with these options.
  ///
  /// Issue calls on both in one order on all ranks. An abort of this one reaches it, not the other
  /// way round. Throws: usage_error for a color below 0, which NCCL gives another meaning.
  nccl_communicator split(int color) {
    if (color < 0) {
      detail::throw_misuse(backend_name(), rank(), "split",
                           "the color " + std::to_string(color) + " is below 0");
    }
    return nccl_communicator(detail::split_nccl(session_, color));
  }

 private:
  explicit nccl_communicator(std::shared_ptr<detail::nccl_session> session) noexcept
      : session_(std::move(session)) {}

  /// Copies of a store share what it holds.
  template <Store S>
  static any_store shared(S& store) {
    if constexpr (std::copy_constructible<S>) {
      return any_store::make<S>(store);
    } else {
      return any_store::make<prefixed_store<S>>(store, "zero");
    }
  }

  template <class T>
  static std::size_t units(std::uint64_t elements) noexcept {
    return static_cast<std::size_t>(elements * detail::nccl_element<T>::units);
  }

  detail::checked_call call_site(std::string_view operation) const noexcept {
    return {backend_name(), rank(), size(), operation};
  }

  template <class Call>
  work issue(const detail::collective_call& described, const char* function, queue on, Call call) {
    return {*session_, session_->issue(described, function, on, call)};
  }

  std::shared_ptr<detail::nccl_session> session_;
};

static_assert(Communicator<nccl_communicator, float> && CanSplit<nccl_communicator>);
static_assert(Communicator<nccl_communicator, bfloat16>);
static_assert(Communicator<nccl_communicator, float16>);
static_assert(CanAllGather<nccl_communicator, std::uint16_t>);

}  // namespace zero
