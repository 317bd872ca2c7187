// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <zero/backends/mpi/call.hpp>
#include <zero/backends/mpi/last_words.hpp>
#include <zero/backends/mpi/records.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// Waits between two looks at a request. A rank that waits long gives its core away: MPI itself
/// polls without a pause, which stops the peers where ranks share cores. It never sleeps much
/// longer than an eighth of the time that it has waited already, so that it adds little to a short
/// wait.
class mpi_pause {
 public:
  using clock = std::chrono::steady_clock;

  void wait(clock::time_point now) noexcept {
    if (started_ == clock::time_point{}) started_ = now;
    const clock::duration waited = now - started_;
    if (waited < yielding_time) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min<clock::duration>(waited / 8, longest_sleep));
    }
  }

 private:
  static constexpr std::chrono::microseconds yielding_time{200};
  static constexpr std::chrono::microseconds longest_sleep{1000};

  clock::time_point started_{};
};

/// A duplicate of the user's communicator, the messages in flight on it, and everything that MPI
/// may still touch after this rank has given up: it lives until MPI is done with it (parking.hpp).
///
/// Requests lie in flights: in each, one receive from and one send to every peer.
class mpi_channel {
 public:
  using clock = std::chrono::steady_clock;

  static constexpr std::size_t flights = 2;
  static constexpr int call_tag = 1;
  static constexpr int payload_tag = 2;

  mpi_channel(std::chrono::nanoseconds timeout, bool ends_job) noexcept
      : timeout_(timeout), ends_job_(ends_job), owner_(std::this_thread::get_id()) {}
  mpi_channel(const mpi_channel&) = delete;
  mpi_channel& operator=(const mpi_channel&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int peers() const noexcept { return size_ - 1; }
  MPI_Comm comm() const noexcept { return comm_; }
  bool ends_job() const noexcept { return ends_job_; }
  std::chrono::nanoseconds timeout() const noexcept { return timeout_; }
  mpi_last_words& words() noexcept { return words_; }

  /// Makes the duplicate. Collective over `parent`.
  void duplicate(MPI_Comm parent, const transport_operation& operation) {
    mpi_try(MPI_Comm_rank(parent, &rank_), "MPI_Comm_rank");
    mpi_try(MPI_Comm_idup(parent, &comm_, &collective_), "MPI_Comm_idup");
    deadline_ = operation.deadline;
    await_collective(operation);
    adopt(comm_);
  }

  /// Takes over a communicator that was made for it.
  void adopt(MPI_Comm made) {
    comm_ = made;
    mpi_try(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    mpi_try(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    mpi_try(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    mpi_try(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
    const auto count = static_cast<std::size_t>(peers());
    requests_.assign(flights * 2 * count, MPI_REQUEST_NULL);
    statuses_.resize(std::max<std::size_t>(2 * count, 1));
    words_.open(comm_, rank_, size_);
    is_open_ = true;
  }

  /// Storage that messages are received into; kept as long as they may arrive.
  std::byte* reserve(std::uint64_t bytes) {
    storage_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return storage_.back().get();
  }

  /// The peers in the order in which this rank receives from them and sends to them: at the k-th
  /// place no two ranks send to the same one.
  int source(int k) const noexcept { return (rank_ + 2 * size_ - 1 - k) % size_; }
  int target(int k) const noexcept { return (rank_ + 1 + k) % size_; }

  void receive(std::size_t flight, int k, void* to, int bytes, int tag) {
    mpi_try(MPI_Irecv(to, bytes, MPI_BYTE, source(k), tag, comm_, request(flight, k)), "MPI_Irecv");
  }
  void send(std::size_t flight, int k, const void* from, int bytes, int tag) {
    mpi_try(MPI_Isend(from, bytes, MPI_BYTE, target(k), tag, comm_, request(flight, peers() + k)),
            "MPI_Isend");
  }
  /// The request of the one collective of MPI that can be in flight.
  MPI_Request* collective() noexcept { return &collective_; }

  void await_flight(const transport_operation& operation, std::size_t flight) {
    if (peers() != 0) await(operation, request(flight, 0), 2 * peers());
  }
  void await_collective(const transport_operation& operation) { await(operation, &collective_, 1); }

  /// Starts a step. Throws: what a peer's last word or an abort says; usage_error where MPI does
  /// not allow this thread to call it.
  void begin(const transport_operation& operation) {
    const auto self = std::this_thread::get_id();
    if (owner_.load() != self) {
      if (thread_level_ < MPI_THREAD_SERIALIZED) throw_wrong_thread(operation);
      owner_.store(self);
    }
    step_ = words_.committed();
    deadline_ = operation.deadline;
    is_hurried_ = false;
    words_.listen();
    heed(operation);
  }

  /// From here on this rank finishes the step: the peers rely on it.
  void commit(const transport_operation& operation) {
    if (!words_.commit()) throw_word(operation, *words_.own(), rank_);
  }

  /// Sets this rank's last word and tells the peers where MPI lets this thread call it. Else the
  /// rank does so itself, in its wait in progress or when its communicator is destroyed.
  void interrupt(failure_kind kind, int peer, std::string_view reason) noexcept {
    words_.set(kind, peer, reason);
    if (may_speak()) words_.speak();
  }

  /// Where this rank is in an operation, for an error that blames `peer`.
  communicator_failure place(const transport_operation& operation, int peer) const {
    return {.backend = "mpi",
            .rank = rank_,
            .peer = peer,
            .operation = std::string(operation.call.operation),
            .sequence = operation.call.sequence,
            .elapsed_seconds = operation.elapsed_seconds()};
  }

  /// The communicator is destroyed: no other thread uses it any more, so this one may speak.
  void depart(failure_kind kind, std::string_view reason) noexcept {
    words_.set(kind, rank_, reason);
    if (is_open_) words_.speak();
  }

  /// Ends what is in flight, as far as MPI can: receives are cancelled; sends and collectives that
  /// peers did not finish stay, and MPI_Finalize cannot succeed any more.
  void give_up() noexcept {
    const auto receives = static_cast<std::size_t>(peers());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (i % (2 * receives) < receives) MPI_Cancel(&requests_[i]);
      if (!completes(requests_[i])) is_unfinished_ = true;
    }
    if (collective_ != MPI_REQUEST_NULL && !completes(collective_)) is_unfinished_ = true;
  }

  /// Whether an operation was given up that MPI cannot take back.
  bool is_unfinished() const noexcept { return is_unfinished_; }

  /// Frees the communicator when all ranks have left in peace. Returns whether they have.
  bool try_close() noexcept {
    if (!is_open_ || is_unfinished_ || !words_.all_left()) return false;
    MPI_Comm_free(&comm_);
    is_open_ = false;
    return true;
  }

  /// MPI comes to its end: waits for peers that are about to leave, then stops listening.
  void close_finally() noexcept {
    const auto deadline = clock::now() + timeout_;
    mpi_pause pause;
    while (has_left_in_peace() && !try_close()) {
      const auto now = clock::now();
      if (now >= deadline) break;
      pause.wait(now);
    }
    words_.close();
  }

 private:
  /// How long a step that all ranks have agreed on may go on after one of them failed: bytes that
  /// are on their way arrive within it, and a peer that was stopped does not hold up the failure.
  static constexpr std::chrono::seconds grace{1};
  /// How long a cancelled receive may take whose data are arriving.
  static constexpr std::chrono::milliseconds cancel_time{100};

  MPI_Request* request(std::size_t flight, int index) noexcept {
    return &requests_[flight * static_cast<std::size_t>(2 * peers()) +
                      static_cast<std::size_t>(index)];
  }

  bool may_speak() const noexcept {
    return is_open_ &&
           (thread_level_ == MPI_THREAD_MULTIPLE || owner_.load() == std::this_thread::get_id());
  }

  bool has_left_in_peace() noexcept {
    return is_open_ && !is_unfinished_ && words_.own() != nullptr && words_.own()->is_farewell() &&
           !words_.has_heard_failure();
  }

  void await(const transport_operation& operation, MPI_Request* first, int count) {
    mpi_pause pause;
    while (true) {
      int done = 0;
      check(MPI_Testall(count, first, &done, statuses_.data()), count);
      if (done != 0) return;
      if (is_open_) {
        words_.listen();
        heed(operation);
      }
      const auto now = clock::now();
      if (now >= deadline_) expire(operation, first, count);
      pause.wait(now);
    }
  }

  /// MPI_Testall tells which request failed, and why, in the statuses alone.
  void check(int code, int count) const {
    if (code == MPI_ERR_IN_STATUS) {
      for (int i = 0; i < count; ++i) {
        const int own = statuses_[static_cast<std::size_t>(i)].MPI_ERROR;
        if (own != MPI_SUCCESS && own != MPI_ERR_PENDING) mpi_try(own, "MPI_Testall");
      }
    }
    mpi_try(code, "MPI_Testall");
  }

  /// Throws when this step cannot be finished; grants it a little time when it can, although some
  /// rank has failed.
  void heed(const transport_operation& operation) {
    const mpi_last_word* const own = words_.own();
    if (own == nullptr && !words_.has_heard_any()) return;
    if (own != nullptr && words_.committed() == step_) throw_word(operation, *own, rank_);
    for (int peer = 0; peer < size_; ++peer) {
      const auto& word = words_.of(peer);
      if (word && word->step <= step_) throw_word(operation, *word, peer);
    }
    if (!is_hurried_ && (own != nullptr || words_.has_heard_failure())) {
      is_hurried_ = true;
      deadline_ = std::min(deadline_, clock::now() + grace);
    }
  }

  /// The deadline, or the time of grace, has passed.
  [[noreturn]] void expire(const transport_operation& operation, MPI_Request* first, int count) {
    if (const auto* own = words_.own()) throw_word(operation, *own, rank_);
    for (int peer = 0; is_open_ && peer < size_; ++peer) {
      const auto& word = words_.of(peer);
      if (word && !word->is_farewell()) throw_word(operation, *word, peer);
    }
    const std::vector<int> missing = absent_partners(first, count);
    std::string reason = "rank " + std::to_string(rank_) + " waited " +
                         std::to_string(operation.elapsed_seconds()) + " s in " +
                         operation.call.describe() + " for ";
    if (missing.empty()) reason += "its peers";
    for (std::size_t i = 0; i < missing.size(); ++i) {
      reason += (i == 0 ? "rank(s) " : ", ") + std::to_string(missing[i]);
    }
    const int peer = missing.empty() ? -1 : missing.front();
    words_.set(failure_kind::timeout, peer, reason);
    throw timeout_error(reason, place(operation, peer));
  }

  /// The ranks whose part in these requests is not done, in rank order.
  std::vector<int> absent_partners(MPI_Request* first, int count) {
    std::vector<int> absent;
    if (first == &collective_) return absent;
    for (int i = 0; i < count; ++i) {
      int done = 0;
      if (MPI_Test(first + i, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) continue;
      absent.push_back(i < peers() ? source(i) : target(i - peers()));
    }
    std::sort(absent.begin(), absent.end());
    absent.erase(std::unique(absent.begin(), absent.end()), absent.end());
    return absent;
  }

  /// Throws what `word`, said by `speaker`, means for this rank, whose own last word passes it on.
  [[noreturn]] void throw_word(const transport_operation& operation, const mpi_last_word& word,
                               int speaker) {
    if (word.is_farewell()) {
      const std::string reason =
          "rank " + std::to_string(speaker) + " left: its communicator was destroyed";
      words_.set(failure_kind::aborted, speaker, reason);
      throw aborted_error(reason, place(operation, speaker));
    }
    const std::string reason(text_of(word.reason));
    words_.set(word.failure(), word.peer, reason);
    const bool blames_me = word.peer == rank_;
    const auto where = place(operation, blames_me ? speaker : word.peer);
    if (word.failure() == failure_kind::mismatch) throw mismatch_error(reason, where);
    // The rank that the others waited for did not wait itself.
    if (word.failure() == failure_kind::timeout && !blames_me) throw timeout_error(reason, where);
    throw aborted_error(reason, where);
  }

  [[noreturn]] void throw_wrong_thread(const transport_operation& operation) const {
    throw usage_error("mpi rank " + std::to_string(rank_) + ", " +
                      std::string(operation.call.operation) +
                      ": called by another thread than the one that made the communicator, but MPI "
                      "was initialised with " +
                      mpi_thread_level_name(thread_level_) +
                      "; ask MPI_Init_thread for MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
  }

  static bool completes(MPI_Request& pending) noexcept {
    const auto deadline = clock::now() + cancel_time;
    while (true) {
      int done = 0;
      if (MPI_Test(&pending, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0) return true;
      if (clock::now() >= deadline) return false;
      std::this_thread::yield();
    }
  }

  const std::chrono::nanoseconds timeout_;
  const bool ends_job_;
  std::atomic<std::thread::id> owner_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = -1;
  int size_ = 1;
  int thread_level_ = MPI_THREAD_SINGLE;
  bool is_open_ = false;
  bool is_unfinished_ = false;

  mpi_last_words words_;
  std::vector<std::unique_ptr<std::byte[]>> storage_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  MPI_Request collective_ = MPI_REQUEST_NULL;

  std::uint64_t step_ = 0;
  clock::time_point deadline_{};
  bool is_hurried_ = false;
};

}  // namespace zero::detail
