// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/gloo/messages.hpp>
#include <zero/backends/gloo/options.hpp>
#include <zero/backends/gloo/session.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// Messages in one direction between this rank and one peer, during one operation. They arrive in
/// the order in which they were posted, so their number is all that has to be remembered.
struct gloo_stream {
  gloo_buffer* buffer = nullptr;
  std::uint64_t in_flight = 0;  // posted and not yet waited for
};

/// The messages of one rank's operations: what is on its way, who is missing, and the comparison of
/// calls that goes ahead.
///
/// All payload of a call travels on one slot. A message is sent only when its receive is posted, so
/// Gloo writes straight from and into the memory given here.
class gloo_exchange {
 public:
  /// A lane leads to one peer.
  struct lane {
    std::unique_ptr<gloo_buffer> incoming;  // memory of the caller, for one operation
    std::unique_ptr<gloo_buffer> outgoing;
    gloo_stream receives;
    gloo_stream sends;
    gloo_stream relays;  // sends of what was received before
    // Two headers are received in turn, because a peer may be one operation ahead.
    std::unique_ptr<gloo_buffer> header_in;
    std::unique_ptr<gloo_buffer> header_out;
    bool header_is_due = false;
    bool header_is_leaving = false;
  };

  gloo_exchange(std::shared_ptr<::gloo::rendezvous::Context> context, const gloo_options& options)
      : is_checked_(options.checked_order),
        segment_bytes_(options.segment_bytes),
        headers_(3 * static_cast<std::size_t>(context->size)),
        lanes_(static_cast<std::size_t>(context->size)),
        session_(std::make_unique<gloo_session>(std::move(context), options.timeout)) {
    // The next rank first, so that not all ranks begin with the same peer.
    for (int step = 1; step < size(); ++step) peers_.push_back((rank() + step) % size());
    for (const int other : is_checked_ ? peers() : std::vector<int>()) {
      at(other).header_in = session_->buffer(header_from(other), 2 * sizeof(gloo_call_header));
      at(other).header_out = session_->buffer(header_to(other), sizeof(gloo_call_header));
      for (std::uint64_t turn = 0; turn < 2; ++turn) {
        session_->post_ahead([&] { receive_header(other, turn); });
      }
    }
  }

  int rank() const noexcept { return session_->rank(); }
  int size() const noexcept { return session_->size(); }
  const std::vector<int>& peers() const noexcept { return peers_; }
  gloo_session& session() noexcept { return *session_; }
  std::uint64_t header_bytes() const noexcept { return headers_.size() * sizeof(gloo_call_header); }

  /// Runs an operation's messages. Whatever goes wrong ends the session, and when it is thrown no
  /// message touches the caller's memory any more.
  template <class Body>
  void run(const transport_operation& operation, Body body) {
    try {
      session_->enter(operation);
      slot_ = gloo_slots::payload(operation.call, segment_bytes_);
      body();
    } catch (const communicator_error& error) {
      session_->fail(first_failure::kind_of(error), error.failure().peer, error.reason());
      abandon();
      throw;
    } catch (const std::exception& error) {
      session_->fail(failure_kind::aborted, rank(), error.what());
      abandon();
      throw;
    }
    release();
    session_->leave_operation();
    compared_below_ = operation.call.sequence + 1;
  }

  // Calls

  /// Whether a payload of so many bytes travels in the headers of this operation.
  bool rides_along(const transport_operation& operation, std::uint64_t bytes) const noexcept {
    return needs_headers(operation) && bytes <= gloo_call_header::payload_bytes;
  }

  /// Tells each peer what this rank calls, and gives it payload_of(peer). An operation of several
  /// exchanges is compared in the first one.
  template <class PayloadOf>
  void send_headers(const transport_operation& operation, PayloadOf payload_of) {
    if (!needs_headers(operation)) return;
    for (const int other : peers()) {
      // Two are posted from the start. The next one is posted here and not where its place becomes
      // free: by then a peer may have finished its last operation and left.
      if (headers_compared_ != 0) {
        session_->post(other, [&] { receive_header(other, headers_compared_ + 1); });
      }
      lane& to = at(other);
      header_to(other)->set_call(operation.call);
      const std::span<const std::byte> payload = payload_of(other);
      std::copy(payload.begin(), payload.end(), header_to(other)->payload.begin());
      session_->post(other, [&] {
        to.header_out->send(other, gloo_slots::header, 0, sizeof(gloo_call_header));
      });
      to.header_is_leaving = to.header_is_due = true;
    }
  }
  void send_headers(const transport_operation& operation) {
    send_headers(operation, [](int) { return std::span<const std::byte>(); });
  }

  /// Returns when every peer has called the same as this rank.
  void compare_headers(const transport_operation& operation) {
    if (!needs_headers(operation)) return;
    for (const int other : peers()) {
      lane& from = at(other);
      if (!session_->wait(other, *from.header_in, gloo_way::receive)) give_up(other);
      from.header_is_due = false;
      const gloo_call_header& header = header_from(other)[headers_compared_ % 2];
      if (!(header.call() == operation.call)) mismatch(operation.call, other, header.call());
    }
    ++headers_compared_;
  }

  /// What came with the header that was compared last; stays until the next operation.
  const std::byte* payload_from(int other) const noexcept {
    return header_from(other)[(headers_compared_ - 1) % 2].payload.data();
  }

  // Payload

  void receive_into(int other, std::byte* data, std::uint64_t bytes) {
    at(other).incoming = session_->buffer(data, bytes);
    at(other).receives.buffer = at(other).incoming.get();
  }
  void send_from(int other, const void* data, std::uint64_t bytes) {
    at(other).outgoing = session_->buffer(data, bytes);
    at(other).sends.buffer = at(other).outgoing.get();
  }

  void post_receive(int other, std::uint64_t offset, std::uint64_t bytes) {
    gloo_stream& stream = at(other).receives;
    session_->post(other, [&] { stream.buffer->recv(other, slot_, offset, bytes); });
    ++stream.in_flight;
  }
  void post_send(int other, std::uint64_t offset, std::uint64_t bytes) {
    post_send(other, at(other).sends, offset, bytes);
  }
  void post_relay(int other, std::uint64_t offset, std::uint64_t bytes) {
    post_send(other, at(other).relays, offset, bytes);
  }

  void await_receive(int other) { await(other, at(other).receives, gloo_way::receive, 1); }
  void await_receives() {
    for (const int other : peers()) {
      await(other, at(other).receives, gloo_way::receive, at(other).receives.in_flight);
    }
  }
  void await_relays(int other, std::uint64_t count) {
    await(other, at(other).relays, gloo_way::send, count);
  }
  /// The caller may change what was sent only when Gloo has read all of it.
  void await_sends() {
    for (const int other : peers()) {
      lane& to = at(other);
      await(other, to.sends, gloo_way::send, to.sends.in_flight);
      await(other, to.relays, gloo_way::send, to.relays.in_flight);
      if (!to.header_is_leaving) continue;
      if (!session_->wait(other, *to.header_out, gloo_way::send)) give_up(other);
      to.header_is_leaving = false;
    }
  }

  lane& at(int other) noexcept { return lanes_[static_cast<std::size_t>(other)]; }

 private:
  void abandon() noexcept {
    session_->abandon();
    release();
  }
  void release() noexcept {
    for (lane& any : lanes_) {
      any.incoming.reset();
      any.outgoing.reset();
      any.receives = any.sends = any.relays = {};
    }
  }

  bool needs_headers(const transport_operation& operation) const noexcept {
    return is_checked_ && compared_below_ <= operation.call.sequence;
  }

  gloo_call_header* header_to(int other) noexcept {
    return &headers_[3 * static_cast<std::size_t>(other)];
  }
  gloo_call_header* header_from(int other) noexcept { return header_to(other) + 1; }
  const gloo_call_header* header_from(int other) const noexcept {
    return &headers_[3 * static_cast<std::size_t>(other) + 1];
  }

  void receive_header(int other, std::uint64_t turn) {
    at(other).header_in->recv(other, gloo_slots::header, turn % 2 * sizeof(gloo_call_header),
                              sizeof(gloo_call_header));
  }

  void post_send(int other, gloo_stream& stream, std::uint64_t offset, std::uint64_t bytes) {
    session_->post(other, [&] { stream.buffer->send(other, slot_, offset, bytes); });
    ++stream.in_flight;
  }

  void await(int other, gloo_stream& stream, gloo_way way, std::uint64_t count) {
    for (; count != 0; --count) {
      if (!session_->wait(other, *stream.buffer, way)) give_up(other);
      --stream.in_flight;
    }
  }

  [[noreturn]] void mismatch(const collective_call& own, int other, const collective_call& theirs) {
    const auto called = [](int who, const collective_call& call) {
      return "rank " + std::to_string(who) + " called " + call.describe();
    };
    gloo_failure failure;
    failure.kind = failure_kind::mismatch;
    failure.peer = other;
    failure.since = own.sequence;
    failure.reason = other < rank() ? called(other, theirs) + ", " + called(rank(), own)
                                    : called(rank(), own) + ", " + called(other, theirs);
    session_->fail(failure);
    session_->throw_failure();
  }

  /// The deadline has passed in a wait for `awaited`: says which ranks have not come.
  [[noreturn]] void give_up(int awaited) {
    std::vector<int> missing;
    const auto collect = [&](auto owes) {
      for (int other = 0; missing.empty() && other < size(); ++other) {
        if (other == rank() || !owes(other)) continue;
        for (int also = other; also < size(); ++also) {
          if (also == other || (also != rank() && owes(also))) missing.push_back(also);
        }
      }
    };
    collect([&](int other) {
      return at(other).header_is_due &&
             !session_->has_ended(other, *at(other).header_in, gloo_way::receive);
    });
    collect([&](int other) { return owes(other, at(other).receives, gloo_way::receive); });
    collect([&](int other) { return owes(other, at(other).sends, gloo_way::send); });
    // It may have come in this moment; somebody has to be named.
    if (missing.empty()) missing.push_back(awaited);
    session_->throw_timeout(missing);
  }
  bool owes(int other, gloo_stream& stream, gloo_way way) {
    return stream.in_flight != 0 && !session_->has_ended(other, *stream.buffer, way);
  }

  bool is_checked_;
  std::uint64_t segment_bytes_;
  std::uint64_t slot_ = 0;
  std::uint64_t compared_below_ = 0;  // the operations that were compared
  std::uint64_t headers_compared_ = 0;
  std::vector<gloo_call_header> headers_;  // per rank: one to it, two from it
  std::vector<int> peers_;
  std::vector<lane> lanes_;
  // Closes the connections before the buffers and the memory above go.
  std::unique_ptr<gloo_session> session_;
};

}  // namespace zero::detail
