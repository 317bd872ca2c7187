// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/detail/collective_call.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// The state that the ranks of one world of threads share.
///
/// A collective has two halves. `enter` publishes the call and returns when every rank has
/// published an equal one; only this half can fail, by abort, departure, mismatch or deadline.
/// Between the halves ranks read each other's buffers. `meet` returns when every rank
/// is done reading. It needs no deadline and ignores aborts on purpose: nothing between the halves
/// blocks or throws, so every rank arrives, and a rank that left early would free a buffer under
/// the eyes of a peer that still reads it.
class threads_state {
 public:
  using clock = std::chrono::steady_clock;

  /// Doubles that an all-reduce sums at a time, so that it allocates nothing.
  static constexpr std::uint64_t scratch_elements = 512;

  /// `backend` is what errors name; static storage.
  threads_state(int size, std::chrono::nanoseconds timeout, std::string_view backend = "threads")
      : slots_(static_cast<std::size_t>(size)), timeout_(timeout), backend_(backend) {
    for (slot& s : slots_) {
      s.pointers = std::make_unique<std::byte[]>(slots_.size() * sizeof(void*));
      s.scratch.resize(scratch_elements);
    }
  }

  int size() const noexcept { return static_cast<int>(slots_.size()); }
  std::chrono::nanoseconds timeout() const noexcept { return timeout_; }

  /// Returns false when the rank was taken before.
  bool join(int rank) {
    const std::lock_guard lock(mutex_);
    return !std::exchange(at(rank).joined, true);
  }

  /// A rank that goes can take part in nothing any more, so the world ends for all.
  void depart(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    fail(failure_kind::aborted, rank, [&] {
      return "rank " + std::to_string(rank) + " left: its communicator was destroyed";
    });
  }

  void abort(int rank, std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    fail(failure_kind::aborted, rank, [&] { return std::string(reason); });
    // Children are told even when this world had failed before: their ranks may wait there.
    for (const std::weak_ptr<threads_state>& weak : children_) {
      if (const auto child = weak.lock()) child->abort(-1, reason);
    }
  }

  void adopt(const std::shared_ptr<threads_state>& child) {
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const auto& weak) { return weak.expired(); });
    children_.push_back(child);
  }

  bool claim(int rank) noexcept { return !at(rank).claimed.exchange(true); }
  void unclaim(int rank) noexcept { at(rank).claimed.store(false); }

  /// First half: returns when all ranks have entered with equal calls, or throws.
  void enter(int rank, collective_call call, const void* buffer) {
    const auto start = clock::now();
    std::unique_lock lock(mutex_);
    slot& own = at(rank);
    call.sequence = own.next_sequence++;
    if (failed_ != failure_kind::none) throw_failure(rank, call, start);
    own.call = call;
    own.buffer = buffer;
    if (entered_ == 0) {
      first_rank_ = rank;
    } else if (!(at(first_rank_).call == call)) {
      mismatch_peer_ = first_rank_;
      fail(failure_kind::mismatch, rank, [&] {
        return "rank " + std::to_string(first_rank_) + " called " +
               at(first_rank_).call.describe() + ", rank " + std::to_string(rank) + " called " +
               call.describe();
      });
      throw_failure(rank, call, start);
    }
    own.entered = true;
    if (++entered_ == size()) {
      entered_ = 0;
      for (slot& s : slots_) s.entered = false;
      ++entries_;
      wake_.notify_all();
      return;
    }
    const auto entry = entries_;
    const auto deadline = start + timeout_;
    while (entries_ == entry && failed_ == failure_kind::none) {
      if (wake_.wait_until(lock, deadline) == std::cv_status::timeout && entries_ == entry &&
          failed_ == failure_kind::none) {
        fail_by_timeout(rank, call, start);
      }
    }
    // A completed entry wins over a failure that came later: the peers already read my buffer.
    if (entries_ == entry) throw_failure(rank, call, start);
  }

  /// Second half: returns when all ranks have come here. Says to all of them alike whether the world
  /// was still whole then.
  bool meet() noexcept {
    std::unique_lock lock(mutex_);
    if (++left_ == size()) {
      left_ = 0;
      ++exits_;
      was_whole_ = failed_ == failure_kind::none;
      wake_.notify_all();
      return was_whole_;
    }
    const auto exit = exits_;
    while (exits_ == exit) wake_.wait(lock);
    return was_whole_;
  }

  /// For backends whose work between the halves can fail after all: they abort, still meet, and
  /// where meet() says so, every rank throws here.
  [[noreturn]] void throw_abort(int rank, collective_call call, clock::time_point start) {
    const std::lock_guard lock(mutex_);
    call.sequence = at(rank).next_sequence - 1;
    throw_failure(rank, call, start);
  }

  /// Of this rank's next call; for the rank itself.
  std::uint64_t next_sequence(int rank) const noexcept { return at(rank).next_sequence; }

  // The members below may be used between the two halves.

  const void* buffer(int rank) const noexcept { return at(rank).buffer; }

  /// Element `offset` of all ranks' buffers in rank order, listed in storage of `rank`.
  template <class T>
  std::span<const T* const> buffers(int rank, std::uint64_t offset) noexcept {
    std::byte* storage = at(rank).pointers.get();
    const T** first = nullptr;
    for (std::size_t i = slots_.size(); i-- > 0;) {
      const T* const element = static_cast<const T*>(slots_[i].buffer) + offset;
      first = new (storage + i * sizeof(const T*)) const T*(element);
    }
    return {first, slots_.size()};
  }

  std::span<double> scratch(int rank) noexcept { return at(rank).scratch; }

  /// Slots through which `split` exchanges colors and the new worlds.
  int& color(int rank) noexcept { return at(rank).color; }

  /// The ranks of one color, in rank order, as `rank` sees them.
  struct part {
    int leader = -1;  ///< the first of them
    int members = 0;
    int rank = 0;  ///< of `rank` among them
  };
  part part_of(int rank) const noexcept {
    part own;
    for (int peer = 0; peer < size(); ++peer) {
      if (at(peer).color != at(rank).color) continue;
      if (own.leader < 0) own.leader = peer;
      if (peer < rank) ++own.rank;
      ++own.members;
    }
    return own;
  }
  std::shared_ptr<threads_state>& offspring(int rank) noexcept { return at(rank).offspring; }

 private:
  enum class failure_kind { none, aborted, mismatch, timeout };

  struct slot {
    collective_call call;
    const void* buffer = nullptr;
    std::uint64_t next_sequence = 0;
    bool joined = false;
    bool entered = false;
    bool missing = false;  // a peer's deadline passed while it waited for this rank
    std::atomic<bool> claimed{false};
    int color = 0;
    std::shared_ptr<threads_state> offspring;
    std::unique_ptr<std::byte[]> pointers;
    std::vector<double> scratch;
  };

  slot& at(int rank) noexcept { return slots_[static_cast<std::size_t>(rank)]; }
  const slot& at(int rank) const noexcept { return slots_[static_cast<std::size_t>(rank)]; }

  /// Records the first failure only. The caller holds the mutex.
  template <class MakeReason>
  void fail(failure_kind kind, int rank, MakeReason make_reason) noexcept {
    if (failed_ != failure_kind::none) return;
    failed_ = kind;
    failed_rank_ = rank;
    try {
      reason_ = make_reason();
    } catch (...) {
      reason_.clear();  // no memory for the text: the kind and the rank still stand
    }
    wake_.notify_all();
  }

  void fail_by_timeout(int rank, const collective_call& call, clock::time_point start) {
    std::string absent;
    for (int peer = 0; peer < size(); ++peer) {
      if (at(peer).entered) continue;
      at(peer).missing = true;
      absent += absent.empty() ? "" : ", ";
      absent += std::to_string(peer);
    }
    fail(failure_kind::timeout, rank, [&] {
      return "rank " + std::to_string(rank) + " waited " + std::to_string(seconds_since(start)) +
             " s in " + call.describe() + " for rank(s) " + absent;
    });
  }

  static double seconds_since(clock::time_point start) noexcept {
    return std::chrono::duration<double>(clock::now() - start).count();
  }

  int first_missing() const noexcept {
    int peer = 0;
    while (peer < size() && !at(peer).missing) ++peer;
    return peer;
  }

  [[noreturn]] void throw_failure(int rank, const collective_call& call,
                                  clock::time_point start) const {
    communicator_failure where{.backend = std::string(backend_),
                               .rank = rank,
                               .peer = failed_rank_,
                               .operation = std::string(call.operation),
                               .sequence = call.sequence,
                               .elapsed_seconds = seconds_since(start)};
    if (failed_ == failure_kind::mismatch) {
      if (rank == failed_rank_) where.peer = mismatch_peer_;
      throw mismatch_error(reason_, where);
    }
    if (failed_ == failure_kind::timeout && !at(rank).missing) {
      where.peer = first_missing();
      throw timeout_error(reason_, where);
    }
    throw aborted_error(reason_, where);
  }

  std::vector<slot> slots_;
  std::chrono::nanoseconds timeout_;
  std::string_view backend_;

  std::mutex mutex_;
  std::condition_variable wake_;
  int entered_ = 0;
  int left_ = 0;
  int first_rank_ = 0;
  std::uint64_t entries_ = 0;
  std::uint64_t exits_ = 0;
  bool was_whole_ = true;  // at the latest exit

  failure_kind failed_ = failure_kind::none;
  int failed_rank_ = -1;
  int mismatch_peer_ = -1;
  std::string reason_;
  std::vector<std::weak_ptr<threads_state>> children_;
};

}  // namespace zero::detail
