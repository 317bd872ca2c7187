// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <zero/detail/collective_call.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero::detail {

/// What the ranks of one NCCL communicator tell each other beside NCCL, through the store: its id,
/// that one of them failed or left, and with checked_order every call.
///
/// NCCL itself tells nobody that a rank gave up: its peers would wait in their kernels.
class nccl_notices {
 public:
  nccl_notices(any_store store, std::string prefix, int rank, int size)
      : store_(std::move(store)), prefix_(std::move(prefix)), rank_(rank), size_(size) {}

  const any_store& store() const noexcept { return store_; }
  const std::string& prefix() const noexcept { return prefix_; }

  void announce_arrival() { store_.set(arrival(rank_), ""); }
  void publish_id(std::string_view bytes) { store_.set(key("id"), bytes); }
  /// Throws: rendezvous_timeout_error.
  std::string id(store_deadline deadline) { return store_.get(key("id"), deadline); }

  /// "1, 3": the ranks that have not announced themselves, and the first of them, -1 for none.
  std::pair<std::string, int> missing_ranks() {
    return missing([this](int peer) { return arrival(peer); });
  }
  /// The same, of those that have not published their call with this number.
  std::pair<std::string, int> missing_calls(std::uint64_t sequence) {
    return missing([this, sequence](int peer) { return call_key(sequence, peer); });
  }

  struct failure {
    first_failure::cause cause;
    std::uint64_t finished = 0;  ///< collectives that were done on the rank that failed
    bool is_inherited = false;   ///< from the communicator that this one was split from
  };

  /// The first failure stands; a store that is gone has nobody left to tell.
  void publish_failure(const failure& failed) noexcept {
    try {
      if (store_.contains(key("failed"))) return;
      // Where nobody is to blame this rank is the one to ask.
      const bool is_known = failed.cause.peer >= 0;
      const int peer = is_known ? failed.cause.peer : rank_;
      // A mismatch is one for all ranks, and so is a rank that all wait for. Whatever else ends
      // this rank is an abort to its peers.
      char kind = failed.is_inherited ? 'i' : 'a';
      if (failed.cause.kind == failure_kind::mismatch) kind = 'm';
      if (failed.cause.kind == failure_kind::timeout && is_known) kind = 't';
      store_.set(key("failed"), std::to_string(peer) + ' ' + std::to_string(failed.finished) + ' ' +
                                    kind + failed.cause.reason.substr(0, reason_bytes));
    } catch (const std::exception&) {  // NOLINT: said above
    }
  }

  /// What a peer published, if any. Throws: rendezvous_error.
  std::optional<failure> published_failure() {
    if (!store_.contains(key("failed"))) return std::nullopt;
    const auto [peer, rest] = parse(store_.get(key("failed"), deadline_in(read_patience)));
    auto [finished, text] = parse(rest);
    const char kind = text.empty() ? 'a' : text.front();
    if (!text.empty()) text.erase(0, 1);
    failure seen;
    seen.cause = {failure_kind::aborted, static_cast<int>(peer), std::move(text)};
    seen.finished = static_cast<std::uint64_t>(finished);
    seen.is_inherited = kind == 'i';
    if (kind == 'm') seen.cause.kind = failure_kind::mismatch;
    // The rank that was waited for did not wait itself.
    if (kind == 't' && peer != rank_) seen.cause.kind = failure_kind::timeout;
    return seen;
  }

  /// This rank took part in the first `collectives` and will in no other.
  void publish_departure(std::uint64_t collectives) noexcept {
    try {
      if (const auto other = departure(); other && other->second <= collectives) return;
      store_.set(key("left"), std::to_string(rank_) + ' ' + std::to_string(collectives));
    } catch (const std::exception&) {  // NOLINT: nobody is left to tell
    }
  }

  /// A rank that left, and the collectives that it took part in. Throws: rendezvous_error.
  std::optional<std::pair<int, std::uint64_t>> departure() {
    if (!store_.contains(key("left"))) return std::nullopt;
    const auto [peer, count] = parse(store_.get(key("left"), deadline_in(read_patience)));
    return std::pair{static_cast<int>(peer), std::uint64_t{std::stoull(count)}};
  }

  /// Publishes this rank's call and compares those of all: "" when they are equal, else a text that
  /// is the same on every rank, with the rank that differs from rank 0 in `odd_one`. `check` is
  /// called while peers are waited for, and may throw. Throws: rendezvous_error.
  template <class Check>
  std::string differing_calls(const collective_call& call, store_deadline deadline, int& odd_one,
                              Check check) {
    store_.set(call_key(call.sequence, rank_), call.describe());
    // All ranks have read what is two collectives old: they have published since.
    if (call.sequence >= 2) store_.remove(call_key(call.sequence - 2, rank_));
    const std::string first = peers_call(call.sequence, 0, deadline, check);
    std::string text;
    for (int peer = 1; peer < size_; ++peer) {
      const std::string other = peers_call(call.sequence, peer, deadline, check);
      if (other == first || !text.empty()) continue;
      odd_one = peer;
      text = "rank 0 called " + first + ", rank " + std::to_string(peer) + " called " + other;
    }
    return text;
  }

 private:
  static constexpr std::size_t reason_bytes = 4096;
  static constexpr std::chrono::seconds read_patience{5};  // the key exists: a read, not a wait

  std::string key(std::string_view name) const { return prefix_ + '/' + std::string(name); }
  std::string arrival(int rank) const { return key("arrived/" + std::to_string(rank)); }
  std::string call_key(std::uint64_t sequence, int rank) const {
    return key("call/" + std::to_string(sequence) + '/' + std::to_string(rank));
  }

  template <class Key>
  std::pair<std::string, int> missing(Key key_of) {
    short_list list;
    int first = -1;
    for (int peer = 0; peer < size_; ++peer) {
      if (store_.contains(key_of(peer))) continue;
      list.add(std::to_string(peer));
      if (first < 0) first = peer;
    }
    return {list.text(), first};
  }

  template <class Check>
  std::string peers_call(std::uint64_t sequence, int peer, store_deadline deadline, Check check) {
    for (;;) {
      check();
      const auto slice = deadline_in(std::chrono::milliseconds(100));
      try {
        return store_.get(call_key(sequence, peer), slice < deadline ? slice : deadline);
      } catch (const rendezvous_timeout_error&) {
        if (std::chrono::steady_clock::now() >= deadline) throw;
      }
    }
  }

  /// "3 something": a number, and the rest.
  static std::pair<std::int64_t, std::string> parse(const std::string& text) {
    const auto space = text.find(' ');
    if (space == std::string::npos) return {-1, text};
    return {std::stoll(text.substr(0, space)), text.substr(space + 1)};
  }

  any_store store_;
  std::string prefix_;
  int rank_;
  int size_;
};

/// Communicators made from one store, in the same order on every rank, are numbered by it. Only
/// this rank writes its number.
inline std::string next_nccl_prefix(any_store& store, int rank) {
  const std::string key = "nccl/made/" + std::to_string(rank);
  std::uint64_t made = 0;
  if (store.contains(key)) made = std::stoull(store.get(key, deadline_in(std::chrono::seconds(5))));
  store.set(key, std::to_string(made + 1));
  return "nccl/" + std::to_string(made);
}

}  // namespace zero::detail
