// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/shm/layout.hpp>
#include <zero/backends/shm/system.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// A rank as the others see it. The descriptor is empty for a thread of this process.
struct peer_process {
  std::int64_t pid = 0;
  std::shared_ptr<const owned_descriptor> descriptor;
};

/// One rank's view of the control segment: the meetings, and who failed, left or died.
///
/// At a meeting each rank leaves a note, fills its half of the window, and waits until all have
/// come. Notes and halves are used in turn, so they stay readable until the reader comes to the
/// next meeting: a rank writes a half again only after that. No lock lies in the segment, so a
/// rank that is killed anywhere holds nothing that the others need; each word has one writer, but
/// for the bell and the choice of the first failure, which are single atomic steps.
class shm_world {
 public:
  using clock = transport_operation::clock;

  /// How long a waiting rank sleeps before it looks whether its peers live.
  static constexpr std::chrono::milliseconds watch_interval{50};

  shm_world(shared_segment segment, const segment_layout& layout, int rank,
            std::vector<peer_process> peers, std::shared_ptr<const shm_world> parent = nullptr)
      : segment_(std::move(segment)),
        layout_(layout),
        rank_(rank),
        pid_(::getpid()),
        peers_(std::move(peers)),
        parent_(std::move(parent)) {
    watched_.reserve(peers_.size());
    for (const peer_process& peer : peers_) {
      const int descriptor = peer.descriptor ? peer.descriptor->get() : -1;
      watched_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    }
    segment_.populate(layout_.window(static_cast<std::uint64_t>(rank_), 0), layout_.window_bytes());
  }
  shm_world(const shm_world&) = delete;
  shm_world& operator=(const shm_world&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(layout_.size); }
  std::uint64_t chunk_bytes() const noexcept { return layout_.chunk_bytes; }
  const std::vector<peer_process>& peers() const noexcept { return peers_; }
  shared_segment& segment() noexcept { return segment_; }

  /// The own note and half of the window for the next meeting.
  meeting_note& next_note() noexcept { return slot(rank_).notes[(meetings_ + 1) % 2]; }
  std::byte* next_window() noexcept { return window_at(rank_, (meetings_ + 1) % 2); }
  /// Those of the last meeting, until the next one.
  const meeting_note& note(int rank) const noexcept { return slot(rank).notes[meetings_ % 2]; }
  const std::byte* window(int rank) const noexcept { return window_at(rank, meetings_ % 2); }

  /// Throws when this communicator failed before, on any rank, or is used after a fork.
  void require_usable(const transport_operation& operation) {
    if (is_forked()) {
      throw usage_error("zero::shm_communicator: made by process " + std::to_string(pid_) +
                        ", used by its child " + std::to_string(::getpid()) +
                        ": make communicators after the fork");
    }
    look_at_parent();
    if (has_failed()) throw_failure(operation);
  }

  /// Returns when all ranks have come to the meeting of this number, or throws.
  void meet(const transport_operation& operation) {
    const std::uint64_t number = ++meetings_;
    slot(rank_).arrived.store(number);
    if (is_complete(number)) return ring();
    auto next_look = clock::now() + watch_interval;
    for (;;) {
      const std::uint32_t bell = header().bell.load();
      if (is_complete(number)) return;
      if (has_failed() || find_departed(number)) return conclude(number, operation);
      const auto now = clock::now();
      if (now >= operation.deadline) {
        record_timeout(number, operation);
        return conclude(number, operation);
      }
      if (now >= next_look) {
        next_look = now + watch_interval;
        look_at_parent();
        find_dead(number);
        continue;
      }
      futex_wait(header().bell, bell, std::min(next_look, operation.deadline));
    }
  }

  /// A meeting after which ranks stop reading each other's memory. A peer may have given up and
  /// changed what was read here, so this one succeeds only where nobody had failed.
  void meet_after_reading(const transport_operation& operation) {
    meet(operation);
    if (has_failed()) throw_failure(operation);
  }

  /// Keeps the first failure of all ranks, and wakes them. Any thread; never waits for a peer.
  void record(failure_kind kind, int peer, std::string_view reason) noexcept {
    if (is_forked()) return;
    const std::lock_guard lock(mutex_);  // between threads of this rank only
    if (!has_failed()) {
      published_failure& own = slot(rank_).failure;
      own.kind = kind;
      own.peer = peer;
      own.reason.assign(reason);
      std::uint32_t none = 0;
      header().failed.compare_exchange_strong(none, static_cast<std::uint32_t>(rank_) + 1);
    }
    ring();
  }

  void leave() noexcept {
    if (is_forked()) return;
    slot(rank_).departed.store(1);
    ring();
  }

  bool has_failed() const noexcept { return header().failed.load() != 0; }
  /// Whether this object was copied into another process by fork.
  bool is_forked() const noexcept { return ::getpid() != pid_; }

  /// Requires: has_failed(). Throws the first failure as this rank sees it.
  [[noreturn]] void throw_failure(const transport_operation& operation) const {
    const published_failure& first = failure();
    const auto recorder = static_cast<int>(header().failed.load()) - 1;
    communicator_failure where = describe_place(operation, first.peer);
    const std::string reason(first.reason.view());
    if (first.kind == failure_kind::mismatch) throw mismatch_error(reason, where);
    if (first.kind == failure_kind::timeout) {
      // The one that was waited for did not time out itself.
      if (slot(rank_).missing.load() == 0) throw timeout_error(reason, where);
      where.peer = recorder;
    }
    throw aborted_error(reason, where);
  }

  communicator_failure describe_place(const transport_operation& operation, int peer) const {
    return {.backend = "shm",
            .rank = rank_,
            .peer = peer,
            .operation = std::string(operation.call.operation),
            .sequence = operation.call.sequence,
            .elapsed_seconds = operation.elapsed_seconds()};
  }

 private:
  segment_header& header() const noexcept {
    return *reinterpret_cast<segment_header*>(segment_.base());
  }
  rank_slot& slot(int rank) const noexcept {
    return reinterpret_cast<rank_slot*>(segment_.base() + layout_.slots())[rank];
  }
  std::byte* window_at(int rank, std::uint64_t half) const noexcept {
    return segment_.base() + layout_.window(static_cast<std::uint64_t>(rank), half);
  }
  const published_failure& failure() const noexcept {
    return slot(static_cast<int>(header().failed.load()) - 1).failure;
  }

  void ring() noexcept {
    header().bell.fetch_add(1);
    futex_wake_all(header().bell);
  }

  bool has_come(int rank, std::uint64_t number) const noexcept {
    return slot(rank).arrived.load() >= number;
  }
  bool is_complete(std::uint64_t number) const noexcept {
    for (int rank = 0; rank < size(); ++rank) {
      if (!has_come(rank, number)) return false;
    }
    return true;
  }

  /// Something failed. A complete meeting wins: what failed did so after it, and the notes are here
  /// to be read by every rank, as a mismatch requires.
  void conclude(std::uint64_t number, const transport_operation& operation) const {
    if (!is_complete(number)) throw_failure(operation);
  }

  bool find_departed(std::uint64_t number) noexcept {
    for (int rank = 0; rank < size(); ++rank) {
      if (slot(rank).departed.load() == 0 || has_come(rank, number)) continue;
      record_by_text(failure_kind::aborted, rank, [&] {
        return "rank " + std::to_string(rank) + " left: its communicator was destroyed";
      });
      return true;
    }
    return false;
  }

  void find_dead(std::uint64_t number) noexcept {
    ::poll(watched_.data(), watched_.size(), 0);
    for (int rank = 0; rank < size(); ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      // An empty descriptor: it was dead before the descriptor could be opened.
      const bool was_dead = peers_[i].descriptor && !*peers_[i].descriptor;
      if (!was_dead && watched_[i].revents == 0) continue;
      // It may have come, or left, before it ended.
      if (has_come(rank, number) || slot(rank).departed.load() != 0) continue;
      record_by_text(failure_kind::aborted, rank, [&] {
        return "rank " + std::to_string(rank) + " (pid " + std::to_string(peers_[i].pid) + ") died";
      });
      return;
    }
  }

  void record_timeout(std::uint64_t number, const transport_operation& operation) noexcept {
    int first = -1;
    for (int rank = 0; rank < size(); ++rank) {
      if (has_come(rank, number)) continue;
      slot(rank).missing.store(1);
      if (first < 0) first = rank;
    }
    if (first < 0) return;  // all came while this rank looked at the clock
    record_by_text(failure_kind::timeout, first, [&] {
      std::string absent;
      for (int rank = 0; rank < size(); ++rank) {
        if (slot(rank).missing.load() == 0) continue;
        absent += absent.empty() ? "" : ", ";
        absent += std::to_string(rank);
      }
      return "rank " + std::to_string(rank_) + " waited " +
             std::to_string(operation.elapsed_seconds()) + " s in " + operation.call.describe() +
             " for rank(s) " + absent;
    });
  }

  /// The communicator that this one was split from takes this one down with it.
  void look_at_parent() noexcept {
    for (const shm_world* above = parent_.get(); above != nullptr; above = above->parent_.get()) {
      if (!above->has_failed()) continue;
      // Its ranks have other numbers here.
      record(failure_kind::aborted, -1, above->failure().reason.view());
      return;
    }
  }

  template <class MakeText>
  void record_by_text(failure_kind kind, int peer, MakeText make_text) noexcept {
    try {
      record(kind, peer, make_text());
    } catch (...) {
      record(kind, peer, {});  // no memory for the text: the kind and the rank still stand
    }
  }

  shared_segment segment_;
  segment_layout layout_;
  int rank_;
  std::int64_t pid_;
  std::vector<peer_process> peers_;
  std::vector<pollfd> watched_;
  std::uint64_t meetings_ = 0;
  std::shared_ptr<const shm_world> parent_;

  std::mutex mutex_;  // of the own slot's failure
};

}  // namespace zero::detail
