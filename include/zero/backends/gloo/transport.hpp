// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/gloo/connect.hpp>
#include <zero/backends/gloo/messages.hpp>
#include <zero/backends/gloo/options.hpp>
#include <zero/backends/gloo/session.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero::detail {

/// Bytes at a multiple of 64, not initialised: pages that no message reaches are never touched.
class gloo_scratch {
 public:
  explicit gloo_scratch(std::uint64_t bytes)
      : bytes_(bytes),
        data_(bytes == 0 ? nullptr : static_cast<std::byte*>(::operator new(bytes, alignment))) {}

  std::byte* data() const noexcept { return data_.get(); }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::align_val_t alignment{gloo_segment_alignment};
  struct release {
    void operator()(std::byte* data) const noexcept { ::operator delete(data, alignment); }
  };

  std::uint64_t bytes_;
  std::unique_ptr<std::byte, release> data_;
};

/// Messages between this rank and its peers, by direct exchange: every rank sends to every other.
///
/// A lane leads to one peer. Messages of one call travel on one slot, in order, so their number is
/// all that has to be remembered. Receives are posted first, and a message is sent only when its
/// receive is known: Gloo writes straight from and into the memory given here.
class gloo_transport {
 public:
  static constexpr std::string_view backend_name() noexcept { return "gloo"; }

  /// Meets the other ranks in the store and connects to them. A world of one rank needs no network.
  /// Throws: timeout_error that names who is missing, mismatch_error, communicator_error.
  gloo_transport(any_store store, int rank, int size, const gloo_options& options)
      : gloo_transport(std::move(store), rank, size, effective_gloo_options(options), "") {
    if (size_ == 1) return;
    if (options_.ignore_sigpipe) ignore_sigpipe_if_default();
    gloo_setup setup(*store_, rank_, size_, deadline_in(options_.setup_timeout));
    prefix_ = setup.meet(options_, "direct");
    device_ = setup.open_device(options_);
    open(setup.connect(device_, prefix_));
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  std::chrono::nanoseconds timeout() const noexcept { return options_.timeout; }

  /// What this object holds besides Gloo's own state. Units: bytes.
  std::uint64_t scratch_bytes() const noexcept {
    return scratch_.bytes() + headers_.size() * sizeof(gloo_call_header);
  }

  void interrupt(std::string_view reason) noexcept {
    if (!session_) return;
    session_->fail(failure_kind::aborted, rank_, reason);
  }

  void leave() noexcept {
    if (session_) session_->leave();
  }

  template <class T, class Fold>
  void reduce_scatter(const transport_operation& operation, const T* in,
                      std::uint64_t shard_elements, Fold&& fold) {
    run(operation, [&] {
      const std::uint64_t shard_bytes = shard_elements * sizeof(T);
      const std::uint64_t segments = segments_of(shard_bytes);
      send_headers(operation.call, {});
      for (int other : peers()) {
        lane& to = at(other);
        to.slot = slot_of(operation);
        to.outgoing =
            session_->buffer(in + static_cast<std::uint64_t>(other) * shard_elements, shard_bytes);
        to.receiving = to.landing.get();
        to.sending = to.outgoing.get();
      }
      const auto depth = static_cast<std::uint64_t>(options_.depth);
      for (std::uint64_t k = 0; k < std::min(depth, segments); ++k) {
        exchange_segment(k, shard_bytes);
      }
      compare_headers(operation, [](int, const std::byte*) {});
      for (std::uint64_t k = 0; k < segments; ++k) {
        for (int other : peers()) await_receive(other);
        const std::uint64_t first = k * options_.segment_bytes / sizeof(T);
        const std::uint64_t count = bytes_of(k, shard_bytes) / sizeof(T);
        const auto own = static_cast<std::uint64_t>(rank_) * shard_elements + first;
        fold(pieces<T>(in + own, k), first, count);
        if (k + depth < segments) exchange_segment(k + depth, shard_bytes);
      }
      await_sends();
    });
  }

  void all_gather(const transport_operation& operation, const std::byte* in, std::byte* out,
                  std::uint64_t shard_bytes) {
    run(operation, [&] {
      const auto place = [&](int of) { return out + static_cast<std::uint64_t>(of) * shard_bytes; };
      const bool rides_along = begins(operation) && shard_bytes <= gloo_call_header::payload_bytes;
      if (rides_along) {
        send_headers(operation.call, std::span(in, shard_bytes));
      } else {
        send_headers(operation.call, {});
        for (int other : peers()) {
          lane& to = at(other);
          to.slot = slot_of(operation);
          to.incoming = session_->buffer(place(other), shard_bytes);
          to.outgoing = session_->buffer(in, shard_bytes);
          to.receiving = to.incoming.get();
          to.sending = to.outgoing.get();
          post_receive(other, 0, shard_bytes);
        }
        for (int other : peers()) post_send(other, 0, shard_bytes);
      }
      if (shard_bytes != 0 && in != place(rank_)) std::memcpy(place(rank_), in, shard_bytes);
      compare_headers(operation, [&](int other, const std::byte* payload) {
        if (rides_along && shard_bytes != 0) std::memcpy(place(other), payload, shard_bytes);
      });
      for (int other : peers()) await_receive(other);
      await_sends();
    });
  }

  void broadcast(const transport_operation& operation, std::byte* values, std::uint64_t bytes,
                 int root) {
    run(operation, [&] {
      send_headers(operation.call, {});
      for (int other : peers()) {
        if (rank_ != root && other != root) continue;
        lane& to = at(other);
        to.slot = slot_of(operation);
        if (rank_ == root) {
          to.outgoing = session_->buffer(values, bytes);
          to.sending = to.outgoing.get();
          post_send(other, 0, bytes);
        } else {
          to.incoming = session_->buffer(values, bytes);
          to.receiving = to.incoming.get();
          post_receive(other, 0, bytes);
        }
      }
      compare_headers(operation, [](int, const std::byte*) {});
      for (int other : peers()) await_receive(other);
      await_sends();
    });
  }

  std::unique_ptr<gloo_transport> split(std::span<const int> members,
                                        const transport_operation& operation) {
    const auto own = std::find(members.begin(), members.end(), rank_) - members.begin();
    auto part = std::unique_ptr<gloo_transport>(new gloo_transport(
        *store_, static_cast<int>(own), static_cast<int>(members.size()), options_,
        prefix_ + "/part" + std::to_string(operation.call.sequence) + '.' +
            std::to_string(members.front())));
    if (part->size_ == 1) return part;
    run(operation, [&] {
      part->device_ = device_;
      gloo_setup setup(*store_, part->rank_, part->size_, operation.deadline);
      part->open(setup.connect(device_, part->prefix_, [&] {
        if (session_->has_failed()) session_->throw_failure();
      }));
    });
    return part;
  }

 private:
  using way = gloo_way;

  /// The connection to one peer during one operation.
  struct lane {
    std::unique_ptr<gloo_buffer> landing;   // the scratch for this peer's segments, for good
    std::unique_ptr<gloo_buffer> incoming;  // memory of the caller, for this operation
    std::unique_ptr<gloo_buffer> outgoing;
    gloo_buffer* receiving = nullptr;
    gloo_buffer* sending = nullptr;
    std::uint64_t slot = 0;
    std::uint64_t receives = 0;  // posted and not yet waited for
    std::uint64_t sends = 0;
    std::unique_ptr<gloo_buffer> header_in;  // two headers, received in turn
    std::unique_ptr<gloo_buffer> header_out;
    bool header_is_due = false;
    bool header_is_sent = true;
  };

  gloo_transport(any_store store, int rank, int size, const gloo_options& options,
                 std::string prefix)
      : rank_(rank),
        size_(size),
        options_(options),
        store_(std::make_unique<any_store>(std::move(store))),
        prefix_(std::move(prefix)),
        scratch_(static_cast<std::uint64_t>(check_size(rank, size) - 1) *
                 static_cast<std::uint64_t>(options.depth) * options.segment_bytes),
        headers_(size == 1 ? 0 : 2 * static_cast<std::size_t>(size) - 1),
        pieces_(static_cast<std::size_t>(size) * sizeof(void*)),
        lanes_(static_cast<std::size_t>(size)) {
    // The next rank first, so that not all ranks begin with the same peer.
    for (int step = 1; step < size; ++step) peers_.push_back((rank + step) % size);
  }

  static int check_size(int rank, int size) {
    if (size < 1 || rank < 0 || rank >= size) {
      throw usage_error("zero::gloo_communicator: rank " + std::to_string(rank) +
                        " of a world of " + std::to_string(size) + " does not exist");
    }
    return size;
  }

  void open(gloo_setup::context_pointer context) {
    session_ = std::make_unique<gloo_session>(std::move(context), options_.timeout);
    for (int other : peers()) {
      lane& to = at(other);
      to.landing =
          session_->buffer(segment_place(other, 0),
                           static_cast<std::uint64_t>(options_.depth) * options_.segment_bytes);
      to.header_in = session_->buffer(header_from(other), 2 * sizeof(gloo_call_header));
      to.header_out = session_->buffer(own_header(), sizeof(gloo_call_header));
      for (std::uint64_t turn = 0; options_.checked_order && turn < 2; ++turn) {
        receive_header(other, turn);
      }
    }
  }

  const std::vector<int>& peers() const noexcept { return peers_; }
  lane& at(int other) noexcept { return lanes_[static_cast<std::size_t>(other)]; }

  /// Places of peers in tables that have none for this rank.
  std::size_t index_of(int other) const noexcept {
    return static_cast<std::size_t>(other < rank_ ? other : other - 1);
  }

  template <class Body>
  void run(const transport_operation& operation, Body body) {
    try {
      session_->begin(operation);
      body();
    } catch (const communicator_error& error) {
      session_->fail(first_failure::kind_of(error), error.failure().peer, error.reason());
      abandon();
      throw;
    } catch (const std::exception& error) {
      session_->fail(failure_kind::aborted, rank_, error.what());
      abandon();
      throw;
    }
    release();
    session_->end();
    is_compared_ = operation.call.sequence + 1;
  }

  void abandon() noexcept {
    session_->abandon();
    release();
  }

  void release() noexcept {
    for (int other : peers()) {
      lane& to = at(other);
      to.incoming.reset();
      to.outgoing.reset();
      to.receiving = to.sending = nullptr;
    }
  }

  // Segments

  std::uint64_t segments_of(std::uint64_t bytes) const noexcept {
    return (bytes + options_.segment_bytes - 1) / options_.segment_bytes;
  }
  std::uint64_t bytes_of(std::uint64_t segment, std::uint64_t bytes) const noexcept {
    return std::min(options_.segment_bytes, bytes - segment * options_.segment_bytes);
  }
  std::uint64_t offset_of(std::uint64_t segment) const noexcept {
    return segment % static_cast<std::uint64_t>(options_.depth) * options_.segment_bytes;
  }
  std::byte* segment_place(int other, std::uint64_t segment) const noexcept {
    return scratch_.data() +
           index_of(other) * static_cast<std::uint64_t>(options_.depth) * options_.segment_bytes +
           offset_of(segment);
  }

  void exchange_segment(std::uint64_t segment, std::uint64_t shard_bytes) {
    const std::uint64_t bytes = bytes_of(segment, shard_bytes);
    for (int other : peers()) post_receive(other, offset_of(segment), bytes);
    for (int other : peers()) post_send(other, segment * options_.segment_bytes, bytes);
  }

  /// What the ranks contribute to a segment of the own shard, in rank order.
  template <class T>
  std::span<const T* const> pieces(const T* own, std::uint64_t segment) noexcept {
    const T** first = nullptr;
    for (int from = size_; from-- > 0;) {
      const T* const piece =
          from == rank_ ? own : reinterpret_cast<const T*>(segment_place(from, segment));
      first = new (pieces_.data() + static_cast<std::size_t>(from) * sizeof(piece)) const T*(piece);
    }
    return {first, static_cast<std::size_t>(size_)};
  }

  // Messages

  std::uint64_t slot_of(const transport_operation& operation) const noexcept {
    return gloo_slots::payload(operation.call, options_.segment_bytes);
  }

  void post_receive(int other, std::uint64_t offset, std::uint64_t bytes) {
    lane& from = at(other);
    session_->post(other, [&] { from.receiving->recv(other, from.slot, offset, bytes); });
    ++from.receives;
  }
  void post_send(int other, std::uint64_t offset, std::uint64_t bytes) {
    lane& to = at(other);
    session_->post(other, [&] { to.sending->send(other, to.slot, offset, bytes); });
    ++to.sends;
  }

  void await_receive(int other) {
    lane& from = at(other);
    if (from.receives == 0) return;
    if (!session_->wait(other, *from.receiving, way::receive)) give_up(other);
    --from.receives;
  }
  /// The caller may change what was sent only when Gloo has read all of it.
  void await_sends() {
    for (int other : peers()) {
      lane& to = at(other);
      for (; to.sends != 0; --to.sends) {
        if (!session_->wait(other, *to.sending, way::send)) give_up(other);
      }
      if (!to.header_is_sent) {
        if (!session_->wait(other, *to.header_out, way::send)) give_up(other);
        to.header_is_sent = true;
      }
    }
  }

  // Headers: two places to receive into per peer, because a peer may be one operation ahead, and
  // one place to send from.

  gloo_call_header* header_from(int other) noexcept { return &headers_[1 + 2 * index_of(other)]; }
  gloo_call_header* own_header() noexcept { return headers_.data(); }

  /// Whether this is the first message of the operation, which a header goes ahead of.
  bool begins(const transport_operation& operation) const noexcept {
    return options_.checked_order && is_compared_ <= operation.call.sequence;
  }

  void receive_header(int other, std::uint64_t turn) {
    session_->post(other, [&] {
      at(other).header_in->recv(other, gloo_slots::header, turn % 2 * sizeof(gloo_call_header),
                                sizeof(gloo_call_header));
    });
  }

  void send_headers(const collective_call& call, std::span<const std::byte> payload) {
    if (!options_.checked_order || is_compared_ > call.sequence) return;
    for (int other : peers()) {
      // Two are posted from the start. The next one is posted here and not where its place becomes
      // free: by then a peer may have finished this operation and left.
      if (headers_compared_ != 0) receive_header(other, headers_compared_ + 1);
    }
    own_header()->set_call(call);
    std::copy(payload.begin(), payload.end(), own_header()->payload.begin());
    for (int other : peers()) {
      lane& to = at(other);
      session_->post(other, [&] {
        to.header_out->send(other, gloo_slots::header, 0, sizeof(gloo_call_header));
      });
      to.header_is_sent = false;
      to.header_is_due = true;
    }
  }

  /// Returns when every peer has called the same as this rank; gives each payload to use().
  template <class Use>
  void compare_headers(const transport_operation& operation, Use use) {
    bool any = false;
    for (int other : peers()) {
      lane& from = at(other);
      if (!from.header_is_due) continue;
      if (!session_->wait(other, *from.header_in, way::receive)) give_up(other);
      from.header_is_due = false;
      any = true;
      const gloo_call_header& header = header_from(other)[headers_compared_ % 2];
      if (!(header.call() == operation.call)) mismatch(operation.call, other, header.call());
      use(other, header.payload.data());
    }
    if (any) ++headers_compared_;
  }

  [[noreturn]] void mismatch(const collective_call& own, int other, const collective_call& theirs) {
    const auto called = [](int who, const collective_call& call) {
      return "rank " + std::to_string(who) + " called " + call.describe();
    };
    gloo_failure failure;
    failure.kind = failure_kind::mismatch;
    failure.peer = other;
    failure.reason = other < rank_ ? called(other, theirs) + ", " + called(rank_, own)
                                   : called(rank_, own) + ", " + called(other, theirs);
    session_->fail(failure);
    session_->throw_failure();
  }

  /// The deadline has passed in a wait for `awaited`: says which ranks have not come.
  [[noreturn]] void give_up(int awaited) {
    std::vector<int> missing;
    const auto collect = [&](auto owes) {
      if (!missing.empty()) return;
      for (int other = 0; other < size_; ++other) {
        if (other != rank_ && owes(other)) missing.push_back(other);
      }
    };
    collect([&](int other) {
      lane& from = at(other);
      return from.header_is_due && !session_->has_ended(other, *from.header_in, way::receive);
    });
    collect([&](int other) {
      lane& from = at(other);
      return from.receives != 0 && !session_->has_ended(other, *from.receiving, way::receive);
    });
    collect([&](int other) {
      lane& to = at(other);
      return to.sends != 0 && !session_->has_ended(other, *to.sending, way::send);
    });
    // It may have come in this moment; somebody has to be named.
    if (missing.empty()) missing.push_back(awaited);
    session_->throw_timeout(missing);
  }

  int rank_;
  int size_;
  gloo_options options_;
  std::unique_ptr<any_store> store_;
  std::string prefix_;
  gloo_setup::device_pointer device_;
  gloo_scratch scratch_;
  std::vector<gloo_call_header> headers_;
  std::vector<std::byte> pieces_;
  std::vector<int> peers_;
  std::uint64_t is_compared_ = 0;  // operations below this number were compared
  std::uint64_t headers_compared_ = 0;
  std::vector<lane> lanes_;
  // Closes the connections before the buffers and the memory above go.
  std::unique_ptr<gloo_session> session_;
};

static_assert(Transport<gloo_transport>);

}  // namespace zero::detail
