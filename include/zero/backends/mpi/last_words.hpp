// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include <zero/backends/mpi/call.hpp>
#include <zero/backends/mpi/records.hpp>
#include <zero/detail/first_failure.hpp>

namespace zero::detail {

/// How the ranks of one MPI communicator learn that one of them left or failed.
///
/// Every rank sends each peer exactly one last word and always listens for theirs. So a rank that
/// waits learns at once that a peer will not come, and when all words are in, the communicator can
/// be freed: no later message can reach one that was made after it under the same number.
class mpi_last_words {
 public:
  static constexpr int tag = 3;

  mpi_last_words() = default;
  mpi_last_words(const mpi_last_words&) = delete;
  mpi_last_words& operator=(const mpi_last_words&) = delete;

  /// Starts to listen.
  void open(MPI_Comm comm, int rank, int size) {
    comm_ = comm;
    rank_ = rank;
    heard_.resize(static_cast<std::size_t>(size));
    sends_.assign(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
    if (peers() != 0) await_next();
  }

  /// Steps that this rank finishes whatever happens: its peers rely on it.
  std::uint64_t committed() const noexcept { return committed_.load(); }

  /// Commits to one more step. Returns false when this rank has set its last word before.
  bool commit() noexcept {
    const std::lock_guard lock(mutex_);
    if (is_set_) return false;
    ++committed_;
    return true;
  }

  /// Sets why this rank takes part in no further step; only the first reason is kept. Any thread.
  void set(failure_kind kind, int peer, std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (is_set_) return;
    own_.step = committed_;
    own_.kind = static_cast<std::uint32_t>(kind);
    own_.peer = peer;
    put_text(own_.reason, reason);
    is_set_ = true;
  }

  /// This rank's word, once it is set.
  const mpi_last_word* own() const noexcept { return is_set_ ? &own_ : nullptr; }

  /// Sends the word that was set to the peers, once. Only a thread that MPI lets call it.
  void speak() noexcept {
    if (!is_set_ || is_said_.exchange(true)) return;
    const int size = peers() + 1;
    // Not all at the same peer first.
    for (int k = 1; k < size; ++k) {
      const int peer = (rank_ + k) % size;
      MPI_Isend(&own_, sizeof(own_), MPI_BYTE, peer, tag, comm_,
                &sends_[static_cast<std::size_t>(peer)]);
    }
    has_sent();
  }

  /// Takes in what has arrived.
  void listen() {
    while (count_ < peers()) {
      int arrived = 0;
      MPI_Status status;
      mpi_try(MPI_Test(&receive_, &arrived, &status), "MPI_Test");
      if (arrived == 0) return;
      heard_[static_cast<std::size_t>(status.MPI_SOURCE)] = incoming_;
      has_heard_failure_ = has_heard_failure_ || !incoming_.is_farewell();
      if (++count_ < peers()) await_next();
    }
  }

  bool has_heard_any() const noexcept { return count_ != 0; }
  bool has_heard_failure() const noexcept { return has_heard_failure_; }
  const std::optional<mpi_last_word>& of(int peer) const noexcept {
    return heard_[static_cast<std::size_t>(peer)];
  }

  /// Whether every rank has left in peace, so that nothing is on its way any more.
  bool all_left() noexcept {
    if (!is_said_ || !own_.is_farewell() || has_heard_failure_) return false;
    try {
      listen();
    } catch (const communicator_error&) {
      return false;
    }
    return count_ == peers() && !has_heard_failure_ && has_sent();
  }

  /// Listens no more.
  void close() noexcept {
    if (receive_ == MPI_REQUEST_NULL) return;
    MPI_Cancel(&receive_);
    MPI_Wait(&receive_, MPI_STATUS_IGNORE);  // a short message: there or cancelled, no peer needed
  }

 private:
  int peers() const noexcept { return static_cast<int>(heard_.size()) - 1; }

  void await_next() {
    mpi_try(
        MPI_Irecv(&incoming_, sizeof(incoming_), MPI_BYTE, MPI_ANY_SOURCE, tag, comm_, &receive_),
        "MPI_Irecv");
  }

  bool has_sent() noexcept {
    int done = 0;
    return MPI_Testall(peers() + 1, sends_.data(), &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
           done != 0;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;

  std::mutex mutex_;  // a step is committed to before or after the word is set, never meanwhile
  std::atomic<std::uint64_t> committed_{0};
  mpi_last_word own_;
  std::atomic<bool> is_set_{false};
  std::atomic<bool> is_said_{false};
  std::vector<MPI_Request> sends_;

  mpi_last_word incoming_;
  MPI_Request receive_ = MPI_REQUEST_NULL;
  std::vector<std::optional<mpi_last_word>> heard_;
  int count_ = 0;
  bool has_heard_failure_ = false;
};

}  // namespace zero::detail
