// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/gloo/connect.hpp>
#include <zero/backends/gloo/exchange.hpp>
#include <zero/backends/gloo/options.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/range.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

/// How a reduce-scatter and an all-gather travel. Both move the same number of bytes.
enum class gloo_algorithm {
  /// Every rank sends to every other one, and sums what it gets in rank_tree order.
  direct,
  /// Every rank sends to the next one only, which adds its part and passes the sum on: one
  /// connection in use per direction. Shard r is summed from rank r + 1 on around to rank r, and
  /// rounded to the element type at every step.
  ring,
};

constexpr std::string_view name_of(gloo_algorithm algorithm) noexcept {
  return algorithm == gloo_algorithm::direct ? "direct" : "ring";
}

namespace detail {

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

/// The collectives of one rank over Gloo's connections; see Transport.
template <gloo_algorithm Algorithm>
class gloo_transport {
 public:
  static constexpr std::string_view backend_name() noexcept { return "gloo"; }

  /// Meets the other ranks in the store and connects to them. A world of one rank needs no network.
  /// Throws: timeout_error that names who is missing, mismatch_error, communicator_error.
  gloo_transport(any_store store, int rank, int size, const gloo_options& options)
      : gloo_transport(std::move(store), rank, size, effective_gloo_options(options), "") {
    if (size_ == 1) return;
    if (options_.ignore_sigpipe) ignore_sigpipe_if_default();
    gloo_setup setup(store_, rank_, size_, deadline_in(options_.setup_timeout));
    prefix_ = setup.meet(options_, name_of(Algorithm));
    device_ = setup.open_device();
    open(setup, {});
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  std::chrono::nanoseconds timeout() const noexcept { return options_.timeout; }

  /// What this object holds besides Gloo's own state. Units: bytes.
  std::uint64_t scratch_bytes() const noexcept {
    return scratch_.bytes() + (exchange_ ? exchange_->header_bytes() : 0);
  }

  void interrupt(std::string_view reason) noexcept {
    if (exchange_) exchange_->session().fail(failure_kind::aborted, rank_, reason);
  }
  void leave() noexcept {
    if (exchange_) exchange_->session().leave();
  }
  void finish(const transport_operation& operation) {
    if (exchange_) exchange_->session().finish(operation.call.sequence);
  }

  template <class T, class Fold>
  void reduce_scatter(const transport_operation& operation, const T* in,
                      std::uint64_t shard_elements, Fold&& fold) {
    exchange_->run(operation, [&] {
      if (exchange_->rides_along(operation, shard_elements * sizeof(T))) {
        ride_and_reduce(operation, in, shard_elements, fold);
      } else if constexpr (Algorithm == gloo_algorithm::ring) {
        pass_around(operation, in, shard_elements, fold);
      } else {
        scatter(operation, in, shard_elements, fold);
      }
      exchange_->await_sends();
    });
  }

  void all_gather(const transport_operation& operation, const std::byte* in, std::byte* out,
                  std::uint64_t shard_bytes) {
    const auto place = [&](int of) { return out + static_cast<std::uint64_t>(of) * shard_bytes; };
    const auto keep_own = [&] {
      if (shard_bytes != 0 && in != place(rank_)) std::memcpy(place(rank_), in, shard_bytes);
    };
    exchange_->run(operation, [&] {
      if (exchange_->rides_along(operation, shard_bytes)) {
        exchange_->send_headers(operation, [&](int) { return std::span(in, shard_bytes); });
        keep_own();
        exchange_->compare_headers(operation);
        for (const int other : exchange_->peers()) {
          if (shard_bytes != 0) {
            std::memcpy(place(other), exchange_->payload_from(other), shard_bytes);
          }
        }
      } else if constexpr (Algorithm == gloo_algorithm::ring) {
        keep_own();
        gather_around(operation, out, shard_bytes);
      } else {
        exchange_->send_headers(operation);
        for (const int other : exchange_->peers()) {
          exchange_->receive_into(other, place(other), shard_bytes);
          exchange_->send_from(other, in, shard_bytes);
          exchange_->post_receive(other, 0, shard_bytes);
        }
        for (const int other : exchange_->peers()) exchange_->post_send(other, 0, shard_bytes);
        keep_own();
        exchange_->compare_headers(operation);
        exchange_->await_receives();
      }
      exchange_->await_sends();
    });
  }

  void broadcast(const transport_operation& operation, std::byte* values, std::uint64_t bytes,
                 int root) {
    const std::span<const std::byte> content(values, rank_ == root ? bytes : 0);
    exchange_->run(operation, [&] {
      if (exchange_->rides_along(operation, bytes)) {
        exchange_->send_headers(operation, [&](int) { return content; });
        exchange_->compare_headers(operation);
        if (rank_ != root && bytes != 0) {
          std::memcpy(values, exchange_->payload_from(root), bytes);
        }
      } else {
        exchange_->send_headers(operation);
        if (rank_ != root) {
          exchange_->receive_into(root, values, bytes);
          exchange_->post_receive(root, 0, bytes);
        }
        for (const int other : rank_ == root ? exchange_->peers() : nobody_) {
          exchange_->send_from(other, values, bytes);
          exchange_->post_send(other, 0, bytes);
        }
        exchange_->compare_headers(operation);
        exchange_->await_receives();
      }
      exchange_->await_sends();
    });
  }

  std::unique_ptr<gloo_transport> split(std::span<const int> members,
                                        const transport_operation& operation) {
    const auto own = std::find(members.begin(), members.end(), rank_) - members.begin();
    auto part = std::unique_ptr<gloo_transport>(new gloo_transport(
        store_, static_cast<int>(own), static_cast<int>(members.size()), options_,
        prefix_ + "/part" + std::to_string(operation.call.sequence) + '.' +
            std::to_string(members.front())));
    if (part->size_ == 1) return part;
    exchange_->run(operation, [&] {
      part->device_ = device_;
      gloo_setup setup(store_, part->rank_, part->size_, operation.deadline);
      part->open(setup, [&] {
        if (exchange_->session().has_failed()) exchange_->session().throw_failure();
      });
    });
    return part;
  }

 private:
  gloo_transport(any_store store, int rank, int size, const gloo_options& options,
                 std::string prefix)
      : rank_(rank),
        size_(size),
        options_(options),
        store_(std::move(store)),
        prefix_(std::move(prefix)),
        scratch_(check_size(rank, size) == 1 ? 0 : landing_places() * place_bytes()),
        pieces_(static_cast<std::size_t>(size) * sizeof(void*)) {}

  static int check_size(int rank, int size) {
    if (size < 1 || rank < 0 || rank >= size) {
      throw usage_error("zero::gloo_communicator: rank " + std::to_string(rank) +
                        " of a world of " + std::to_string(size) + " does not exist");
    }
    return size;
  }

  void open(gloo_setup& setup, std::function<void()> check) {
    exchange_ = std::make_unique<gloo_exchange>(setup.connect(device_, prefix_, std::move(check)),
                                                options_);
    for (const int other : exchange_->peers()) {
      landings_.resize(static_cast<std::size_t>(size_));
      landings_[static_cast<std::size_t>(other)] =
          exchange_->session().buffer(scratch_.data(), scratch_.bytes());
    }
  }

  // Segments of a shard land in scratch until they are summed. A landing place holds `depth` of
  // them: direct exchange has one place per peer, the ring three in turn.

  static constexpr std::uint64_t ring_places = 3;

  std::uint64_t depth() const noexcept { return static_cast<std::uint64_t>(options_.depth); }
  std::uint64_t landing_places() const noexcept {
    return Algorithm == gloo_algorithm::ring ? ring_places : static_cast<std::uint64_t>(size_ - 1);
  }
  std::uint64_t place_bytes() const noexcept { return depth() * options_.segment_bytes; }
  std::uint64_t segments_of(std::uint64_t bytes) const noexcept {
    return (bytes + options_.segment_bytes - 1) / options_.segment_bytes;
  }
  std::uint64_t bytes_of(std::uint64_t segment, std::uint64_t bytes) const noexcept {
    return std::min(options_.segment_bytes, bytes - segment * options_.segment_bytes);
  }
  std::uint64_t landing(std::uint64_t place, std::uint64_t segment) const noexcept {
    return place * place_bytes() + segment % depth() * options_.segment_bytes;
  }
  /// The place of a peer among those of the direct exchange.
  std::uint64_t place_of(int other) const noexcept {
    return static_cast<std::uint64_t>(other < rank_ ? other : other - 1);
  }
  gloo_buffer* landings_of(int other) noexcept {
    return landings_[static_cast<std::size_t>(other)].get();
  }

  /// Pieces in rank order: own of this rank, piece_from(peer) of the others.
  template <class T, class PieceFrom>
  std::span<const T* const> pieces(const T* own, PieceFrom piece_from) noexcept {
    const T** first = nullptr;
    for (int from = size_; from-- > 0;) {
      const T* const piece = from == rank_ ? own : reinterpret_cast<const T*>(piece_from(from));
      first = new (pieces_.data() + static_cast<std::size_t>(from) * sizeof(piece)) const T*(piece);
    }
    return {first, static_cast<std::size_t>(size_)};
  }

  template <class T, class Fold>
  void ride_and_reduce(const transport_operation& operation, const T* in,
                       std::uint64_t shard_elements, Fold& fold) {
    const auto shard_of = [&](int of) {
      return in + static_cast<std::uint64_t>(of) * shard_elements;
    };
    exchange_->send_headers(operation, [&](int other) {
      return std::as_bytes(std::span(shard_of(other), shard_elements));
    });
    exchange_->compare_headers(operation);
    if (shard_elements == 0) return;
    const auto from = [&](int other) { return exchange_->payload_from(other); };
    fold(pieces<T>(shard_of(rank_), from), 0, shard_elements);
  }

  template <class T, class Fold>
  void scatter(const transport_operation& operation, const T* in, std::uint64_t shard_elements,
               Fold& fold) {
    const std::uint64_t shard_bytes = shard_elements * sizeof(T);
    const std::uint64_t segments = segments_of(shard_bytes);
    const auto exchange_segment = [&](std::uint64_t k) {
      const std::uint64_t bytes = bytes_of(k, shard_bytes);
      for (const int other : exchange_->peers()) {
        exchange_->post_receive(other, landing(place_of(other), k), bytes);
      }
      for (const int other : exchange_->peers()) {
        exchange_->post_send(other, k * options_.segment_bytes, bytes);
      }
    };
    exchange_->send_headers(operation);
    for (const int other : exchange_->peers()) {
      exchange_->at(other).receives.buffer = landings_of(other);
      exchange_->send_from(other, in + static_cast<std::uint64_t>(other) * shard_elements,
                           shard_bytes);
    }
    for (std::uint64_t k = 0; k < std::min(depth(), segments); ++k) exchange_segment(k);
    exchange_->compare_headers(operation);
    for (std::uint64_t k = 0; k < segments; ++k) {
      for (const int other : exchange_->peers()) exchange_->await_receive(other);
      const std::uint64_t first = k * options_.segment_bytes / sizeof(T);
      const T* const own = in + static_cast<std::uint64_t>(rank_) * shard_elements + first;
      const auto from = [&](int other) { return scratch_.data() + landing(place_of(other), k); };
      fold(pieces<T>(own, from), first, bytes_of(k, shard_bytes) / sizeof(T));
      if (k + depth() < segments) exchange_segment(k + depth());
    }
  }

  /// The ring works on blocks of `depth` segments. A round moves one block of one shard a step
  /// further; size - 1 rounds finish a block. Messages are in the order of rounds on every
  /// connection, and the receives of a round are posted before the round ahead of it is worked on.
  template <class T, class Fold>
  void pass_around(const transport_operation& operation, const T* in, std::uint64_t shard_elements,
                   Fold& fold) {
    const std::uint64_t shard_bytes = shard_elements * sizeof(T);
    const std::uint64_t segments = segments_of(shard_bytes);
    const auto steps = static_cast<std::uint64_t>(size_ - 1);
    const std::uint64_t rounds = (segments + depth() - 1) / depth() * steps;
    const int next = (rank_ + 1) % size_;
    const int previous = (rank_ + size_ - 1) % size_;
    const auto block_begin = [&](std::uint64_t round) { return round / steps * depth(); };
    const auto block_end = [&](std::uint64_t round) {
      return std::min(segments, block_begin(round) + depth());
    };
    std::array<std::uint64_t, ring_places> relayed{};  // sends in flight from each place

    const auto prepare = [&](std::uint64_t round) {
      const std::uint64_t place = round % ring_places;
      exchange_->await_relays(next, std::exchange(relayed[place], 0));
      for (std::uint64_t k = block_begin(round); k < block_end(round); ++k) {
        const std::uint64_t bytes = bytes_of(k, shard_bytes);
        exchange_->post_receive(previous, landing(place, k), bytes);
        if (round % steps == 0) {
          exchange_->post_send(next, k * options_.segment_bytes, bytes);
        }
      }
    };

    exchange_->send_headers(operation);
    exchange_->at(previous).receives.buffer = landings_of(previous);
    exchange_->at(next).relays.buffer = landings_of(next);
    // The first step sends this rank's part of the shard of the rank before it.
    exchange_->send_from(next, in + static_cast<std::uint64_t>(previous) * shard_elements,
                         shard_bytes);
    if (rounds != 0) prepare(0);
    exchange_->compare_headers(operation);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) prepare(round + 1);
      const std::uint64_t step = round % steps;
      const int shard = (rank_ + 2 * size_ - static_cast<int>(step) - 2) % size_;
      for (std::uint64_t k = block_begin(round); k < block_end(round); ++k) {
        exchange_->await_receive(previous);
        const std::uint64_t place = round % ring_places;
        const std::uint64_t first = k * options_.segment_bytes / sizeof(T);
        const std::uint64_t count = bytes_of(k, shard_bytes) / sizeof(T);
        T* const sum = reinterpret_cast<T*>(scratch_.data() + landing(place, k));
        const T* const own = in + static_cast<std::uint64_t>(shard) * shard_elements + first;
        const std::array<const T*, 2> both{sum, own};
        if (step + 1 == steps) {
          fold(std::span<const T* const>(both), first, count);
          continue;
        }
        kernels::fold(host_space{}, std::span<const T* const>(both), sum, count, 1.0F);
        exchange_->post_relay(next, landing(place, k), count * sizeof(T));
        ++relayed[place];
      }
    }
  }

  /// Each rank passes on what it received last, size - 1 times.
  void gather_around(const transport_operation& operation, std::byte* out,
                     std::uint64_t shard_bytes) {
    const int next = (rank_ + 1) % size_;
    const int previous = (rank_ + size_ - 1) % size_;
    const auto offset_of = [&](int step) {
      return static_cast<std::uint64_t>((rank_ + size_ - step) % size_) * shard_bytes;
    };
    const std::uint64_t all_bytes = static_cast<std::uint64_t>(size_) * shard_bytes;
    exchange_->send_headers(operation);
    exchange_->receive_into(previous, out, all_bytes);
    exchange_->send_from(next, out, all_bytes);
    for (int step = 1; step < size_; ++step) {
      exchange_->post_receive(previous, offset_of(step), shard_bytes);
    }
    exchange_->post_send(next, offset_of(0), shard_bytes);
    exchange_->compare_headers(operation);
    for (int step = 1; step < size_; ++step) {
      exchange_->await_receive(previous);
      if (step + 1 < size_) exchange_->post_send(next, offset_of(step), shard_bytes);
    }
  }

  int rank_;
  int size_;
  gloo_options options_;
  any_store store_;
  std::string prefix_;
  gloo_setup::device_pointer device_;
  gloo_scratch scratch_;
  std::vector<std::byte> pieces_;
  std::vector<int> nobody_;
  std::vector<std::unique_ptr<gloo_buffer>> landings_;  // all of scratch, one per peer
  // Closes the connections before the buffers and the memory above go.
  std::unique_ptr<gloo_exchange> exchange_;
};

static_assert(Transport<gloo_transport<gloo_algorithm::direct>>);
static_assert(Transport<gloo_transport<gloo_algorithm::ring>>);

}  // namespace detail
}  // namespace zero
