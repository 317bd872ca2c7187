// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/communicator.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/collective_checks.hpp>
#include <zero/detail/completed_work.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/error.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/range.hpp>

namespace zero::detail {

/// One collective on its way through a transport: what was called, and until when to wait.
struct transport_operation {
  using clock = std::chrono::steady_clock;

  collective_call call;
  clock::time_point start;
  clock::time_point deadline;

  double elapsed_seconds() const noexcept {
    return std::chrono::duration<double>(clock::now() - start).count();
  }
};

/// What a backend whose ranks are processes supplies: bytes moved between ranks, in order.
///
/// A transport is used by one rank, one operation at a time; only `interrupt` comes from any
/// thread. Its operations block until this rank has its result and the peers need nothing of its
/// buffers any more, and they allocate nothing in the transport's own code. They throw
/// communicator_error (mismatch where peers made another call, timeout after the deadline, aborted
/// where a peer failed or `interrupt` was called), never anything that hides the cause.
///
///   reduce_scatter(operation, in, shard_elements, fold)  shard r of `in` goes to rank r; calls
///       `fold(std::span<const T* const> pieces, first, count)` once or more, so that each element
///       of the own shard is covered once: pieces[r][i] is rank r's contribution to element
///       first + i of the own shard. Pieces are aligned like T and valid during the call of fold.
///       fold writes the caller's output, which may be the own shard of `in`.
///   all_gather(operation, in, out, shard_bytes)  in may be its place in `out`
///   broadcast(operation, values, bytes, root)
///   interrupt(reason)  ends the wait in progress and all later ones, tells the peers; idempotent
///   leave()            says goodbye: the peers' later operations fail with "rank r left: its
///                      communicator was destroyed", what they have in flight is not disturbed
///   finish(operation)  optional: the operation is done on this rank; an all-reduce or a split may
///       have called the transport more than once for it
///   split(members, operation)  the transport among these ranks of this one, in this order; each
///       member calls it with its own list
template <class T>
concept Transport = requires(T& transport, const T& constant, const transport_operation& operation,
                             const std::byte* in, std::byte* out, std::uint64_t bytes, int root,
                             std::string_view reason, std::span<const int> members,
                             const float* floats,
                             void (*fold)(std::span<const float* const>, std::uint64_t,
                                          std::uint64_t)) {
  { T::backend_name() } -> std::convertible_to<std::string_view>;
  { constant.rank() }
  noexcept->std::same_as<int>;
  { constant.size() }
  noexcept->std::same_as<int>;
  { constant.timeout() }
  noexcept->std::convertible_to<std::chrono::nanoseconds>;
  transport.reduce_scatter(operation, floats, bytes, fold);
  transport.all_gather(operation, in, out, bytes);
  transport.broadcast(operation, out, bytes, root);
  { transport.interrupt(reason) }
  noexcept;
  { transport.leave() }
  noexcept;
  { transport.split(members, operation) } -> std::same_as<std::unique_ptr<T>>;
};

/// A communicator over a transport: checks ranges, numbers the operations, sums with the shared
/// fold kernel, and keeps the first failure, so that all process backends fail in the same way.
///
/// Backends derive from it to add their constructors and `split`.
template <Transport Backend>
class transport_communicator {
 public:
  using memory_space = host_space;
  using queue = host_queue;
  using work = completed_work;

  static constexpr summation sums = summation::rank_tree;
  static constexpr std::string_view backend_name() noexcept { return Backend::backend_name(); }

  transport_communicator(transport_communicator&&) noexcept = default;
  transport_communicator& operator=(transport_communicator&& other) noexcept {
    if (this != &other) {
      depart();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  transport_communicator(const transport_communicator&) = delete;
  transport_communicator& operator=(const transport_communicator&) = delete;

  int rank() const noexcept { return state_->transport->rank(); }
  int size() const noexcept { return state_->transport->size(); }

  /// Ends every wait of every rank, here and in the parts split from it, with an aborted_error that
  /// names this rank. Any thread, any number of times; the first reason is kept. Never blocks.
  void abort(std::string_view reason) noexcept { state_->abort(reason); }

  bool claim() noexcept { return !state_->claimed.exchange(true); }
  void unclaim() noexcept { state_->claimed.store(false); }

  /// Rank r receives the sum over ranks of shard r, in rank_tree order, times options.scale.
  template <SummableElement T, SumOutputOf<T> U>
  work reduce_scatter(range<const T, partial> in, range<U, shard> out, reduce_options options = {},
                      queue = {}) {
    check_full_and_shard(call_site("reduce_scatter"), in.data(), in.size(), out.data(), out.size());
    run(describe_sum<T, U>(in.size(), options.scale), [&](const transport_operation& operation) {
      const auto fold = [&](std::span<const T* const> pieces, std::uint64_t first,
                            std::uint64_t count) {
        kernels::fold(host_space{}, pieces, out.data() + first, count, options.scale);
      };
      if (size() == 1) {
        const T* const only = in.data();
        fold(std::span<const T* const>(&only, 1), 0, out.size());
      } else {
        state_->transport->reduce_scatter(operation, in.data(), out.size(), fold);
      }
    });
    return {};
  }

  /// Every rank receives all shards, in rank order.
  template <TransferableElement T>
  work all_gather(range<const T, shard> in, range<T, full> out, queue = {}) {
    check_full_and_shard(call_site("all_gather"), out.data(), out.size(), in.data(), in.size());
    run(describe_call<T>("all_gather", out.size()), [&](const transport_operation& operation) {
      gather(operation, in.data(), out.data(), in.size());
    });
    return {};
  }

  /// The values are replaced by their sums over ranks, in rank_tree order.
  ///
  /// Moves: every rank's values to every rank; meant for a few doubles.
  work all_reduce(range<double, full> values, queue = {}) {
    check_values(call_site("all_reduce"), values.data(), values.size());
    run(describe_call<double>("all_reduce", values.size()),
        [&](const transport_operation& operation) {
          if (size() == 1) return;
          // An operation without elements is still an operation: it meets the peers.
          std::uint64_t first = 0;
          do {
            const auto count = std::min(block_elements, values.size() - first);
            sum_block(operation, values.data() + first, count);
            first += count;
          } while (first < values.size());
        });
    return {};
  }

  /// Every rank receives rank `root`'s values.
  template <TransferableElement T>
  work broadcast(range<T, full> values, int root, queue = {}) {
    check_values(call_site("broadcast"), values.data(), values.size());
    check_root(call_site("broadcast"), root);
    collective_call call = describe_call<T>("broadcast", values.size());
    call.root = root;
    run(call, [&](const transport_operation& operation) {
      if (size() == 1) return;
      state_->transport->broadcast(operation, reinterpret_cast<std::byte*>(values.data()),
                                   values.size() * sizeof(T), root);
    });
    return {};
  }

 protected:
  explicit transport_communicator(std::unique_ptr<Backend> transport)
      : state_(std::make_shared<state>(std::move(transport))) {}
  ~transport_communicator() { depart(); }

  /// The part of the ranks that gave the same color, in rank order: an abort of this communicator
  /// reaches it, not the other way round.
  template <class Derived>
  Derived split_into(int color) {
    std::shared_ptr<state> part;
    collective_call call;
    call.operation = "split";
    run(call, [&](const transport_operation& operation) {
      std::vector<int> colors(static_cast<std::size_t>(size()), color);
      gather(operation, &color, colors.data(), 1);
      std::vector<int> members;
      for (int peer = 0; peer < size(); ++peer) {
        if (colors[static_cast<std::size_t>(peer)] == color) members.push_back(peer);
      }
      part = std::make_shared<state>(state_->transport->split(members, operation));
      state_->adopt(part);
    });
    return Derived(std::move(part));
  }

  struct state;
  explicit transport_communicator(std::shared_ptr<state> part) noexcept : state_(std::move(part)) {}

  Backend& transport() noexcept { return *state_->transport; }

  /// Numbers the call and runs it; backends add collectives of their own with it. Whatever goes
  /// wrong poisons the communicator, tells the peers, and is thrown as the first cause seen here.
  template <class Function>
  void run(collective_call call, Function&& function) {
    transport_operation operation;
    call.sequence = state_->next_sequence++;
    operation.call = call;
    operation.start = transport_operation::clock::now();
    operation.deadline = operation.start + state_->transport->timeout();
    if (state_->failure.has_failed()) raise(operation);
    try {
      function(std::as_const(operation));
      if constexpr (requires { state_->transport->finish(operation); }) {
        state_->transport->finish(operation);
      }
    } catch (const communicator_error& error) {
      state_->fail(error);
      raise(operation);
    } catch (const std::exception& error) {
      state_->abort(error.what());
      throw;
    }
  }

 private:
  /// Doubles that an all-reduce sums at a time.
  static constexpr std::uint64_t block_elements = 512;

  checked_call call_site(std::string_view operation) const noexcept {
    return {backend_name(), rank(), size(), operation};
  }

  void depart() noexcept {
    if (state_ && !state_->failure.has_failed()) state_->transport->leave();
    state_.reset();
  }

  template <class T>
  void gather(const transport_operation& operation, const T* in, T* out, std::uint64_t count) {
    if (size() == 1) {
      if (count != 0 && in != out) std::memcpy(out, in, count * sizeof(T));
      return;
    }
    state_->transport->all_gather(operation, reinterpret_cast<const std::byte*>(in),
                                  reinterpret_cast<std::byte*>(out), count * sizeof(T));
  }

  void sum_block(const transport_operation& operation, double* values, std::uint64_t count) {
    double* const gathered = state_->gathered.data();
    gather(operation, static_cast<const double*>(values), gathered, count);
    for (std::size_t peer = 0; peer < state_->pieces.size(); ++peer) {
      state_->pieces[peer] = gathered + peer * count;
    }
    kernels::fold(host_space{}, std::span<const double* const>(state_->pieces), values, count,
                  1.0F);
  }

  [[noreturn]] void raise(const transport_operation& operation) const {
    state_->failure.raise({.backend = std::string(backend_name()),
                           .rank = rank(),
                           .operation = std::string(operation.call.operation),
                           .sequence = operation.call.sequence,
                           .elapsed_seconds = operation.elapsed_seconds()});
  }

  std::shared_ptr<state> state_;
};

/// What outlives the handle while a part still refers to it, and what abort() reaches.
template <Transport Backend>
struct transport_communicator<Backend>::state {
  explicit state(std::unique_ptr<Backend> made)
      : transport(std::move(made)),
        gathered(static_cast<std::size_t>(transport->size()) * block_elements),
        pieces(static_cast<std::size_t>(transport->size())) {}

  void abort(std::string_view reason) noexcept {
    failure.record(failure_kind::aborted, transport->rank(), reason);
    interrupt(reason);
  }

  void fail(const communicator_error& error) noexcept {
    failure.record(error);
    interrupt(error.reason());
  }

  void interrupt(std::string_view reason) noexcept {
    transport->interrupt(reason);
    // Parts are told even when this communicator had failed before: their ranks may wait there.
    const std::lock_guard lock(mutex);
    for (const std::weak_ptr<state>& weak : parts) {
      if (const auto part = weak.lock()) part->abort(reason);
    }
  }

  void adopt(const std::shared_ptr<state>& part) {
    const std::lock_guard lock(mutex);
    std::erase_if(parts, [](const auto& weak) { return weak.expired(); });
    parts.push_back(part);
  }

  std::unique_ptr<Backend> transport;
  std::vector<double> gathered;
  std::vector<const double*> pieces;
  std::uint64_t next_sequence = 0;
  first_failure failure;
  std::atomic<bool> claimed{false};
  std::mutex mutex;  // of parts
  std::vector<std::weak_ptr<state>> parts;
};

}  // namespace zero::detail
