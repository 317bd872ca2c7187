// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/mpi/call.hpp>
#include <zero/backends/mpi/channel.hpp>
#include <zero/backends/mpi/parking.hpp>
#include <zero/backends/mpi/records.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// What a transport was made with; the same on all ranks.
struct mpi_transport_settings {
  std::chrono::nanoseconds timeout;
  std::uint64_t segment_bytes;  ///< of a reduce-scatter, per peer
  std::uint64_t message_bytes;  ///< the largest message, at most 2^31 - 1
  bool checked_order;
  bool ends_job;
};

/// Collectives over MPI: reduce-scatter and all-gather as direct exchanges between all pairs of
/// ranks, broadcast as MPI's own. All calls of MPI return at once and are polled, so that every
/// wait has a deadline and ends when a peer fails.
class mpi_transport {
 public:
  static constexpr std::string_view backend_name() noexcept { return "mpi"; }

  mpi_transport(MPI_Comm parent, const mpi_transport_settings& settings) : settings_(settings) {
    mpi_parking::sweep();
    auto opening = operation_now("mpi_communicator");
    channel_ = std::make_unique<mpi_channel>(settings.timeout, settings.ends_job);
    try {
      channel_->duplicate(parent, opening);
      agree(opening);
      prepare();
    } catch (...) {
      retire(failure_kind::aborted, "its communicator could not be made");
      throw;
    }
  }

  mpi_transport(const mpi_transport&) = delete;
  mpi_transport& operator=(const mpi_transport&) = delete;
  ~mpi_transport() { retire(failure_kind::none, {}); }

  int rank() const noexcept { return channel_->rank(); }
  int size() const noexcept { return channel_->size(); }
  std::chrono::nanoseconds timeout() const noexcept { return settings_.timeout; }
  std::uint64_t scratch_bytes() const noexcept { return mpi_channel::flights * flight_bytes(); }

  template <class T, class Fold>
  void reduce_scatter(const transport_operation& operation, const T* in,
                      std::uint64_t shard_elements, Fold fold) {
    const std::uint64_t segment = settings_.segment_bytes / sizeof(T);
    step(operation, [&] {
      const auto post = [&](std::uint64_t first, std::uint64_t count, std::size_t flight) {
        const int bytes = static_cast<int>(count * sizeof(T));
        for (int k = 0; k < channel_->peers(); ++k) {
          channel_->receive(flight, k, slot(flight, k), bytes, mpi_channel::payload_tag);
        }
        for (int k = 0; k < channel_->peers(); ++k) {
          const auto shard = static_cast<std::uint64_t>(channel_->target(k)) * shard_elements;
          channel_->send(flight, k, in + shard + first, bytes, mpi_channel::payload_tag);
        }
      };
      const auto finish = [&](std::uint64_t first, std::uint64_t count, std::size_t flight) {
        const auto own = static_cast<std::uint64_t>(rank()) * shard_elements;
        fold(pieces(flight, in + own + first), first, count);
      };
      pipeline(operation, shard_elements, segment, post, finish);
    });
  }

  void all_gather(const transport_operation& operation, const std::byte* in, std::byte* out,
                  std::uint64_t shard_bytes) {
    step(operation, [&] {
      const auto post = [&](std::uint64_t first, std::uint64_t count, std::size_t flight) {
        const int bytes = static_cast<int>(count);
        for (int k = 0; k < channel_->peers(); ++k) {
          std::byte* const shard =
              out + static_cast<std::uint64_t>(channel_->source(k)) * shard_bytes;
          channel_->receive(flight, k, shard + first, bytes, mpi_channel::payload_tag);
        }
        for (int k = 0; k < channel_->peers(); ++k) {
          channel_->send(flight, k, in + first, bytes, mpi_channel::payload_tag);
        }
      };
      pipeline(operation, shard_bytes, settings_.message_bytes, post,
               [](std::uint64_t, std::uint64_t, std::size_t) {});
      std::byte* const own = out + static_cast<std::uint64_t>(rank()) * shard_bytes;
      if (shard_bytes != 0 && own != in) std::memcpy(own, in, shard_bytes);
    });
  }

  void broadcast(const transport_operation& operation, std::byte* values, std::uint64_t bytes,
                 int root) {
    step(operation, [&] {
      for (std::uint64_t first = 0; first < bytes; first += settings_.message_bytes) {
        const auto count = std::min(settings_.message_bytes, bytes - first);
        mpi_try(MPI_Ibcast(values + first, static_cast<int>(count), MPI_BYTE, root,
                           channel_->comm(), channel_->collective()),
                "MPI_Ibcast");
        channel_->await_collective(operation);
      }
    });
  }

  void interrupt(std::string_view reason) noexcept {
    channel_->interrupt(failure_kind::aborted, rank(), reason);
  }

  void leave() noexcept { channel_->depart(failure_kind::none, {}); }

  /// Every rank of this transport calls it at once, each with the part that it belongs to.
  /// MPI has no such call with a deadline; the ranks have just met, so none is far.
  std::unique_ptr<mpi_transport> split(std::span<const int> members, const transport_operation&) {
    MPI_Comm part = MPI_COMM_NULL;
    mpi_try(MPI_Comm_split(channel_->comm(), members.front(), rank(), &part), "MPI_Comm_split");
    return std::unique_ptr<mpi_transport>(new mpi_transport(settings_, part));
  }

 private:
  mpi_transport(const mpi_transport_settings& settings, MPI_Comm part) : settings_(settings) {
    channel_ = std::make_unique<mpi_channel>(settings.timeout, settings.ends_job);
    channel_->adopt(part);
    prepare();
  }

  transport_operation operation_now(std::string_view name) const {
    transport_operation operation;
    operation.call.operation = name;
    operation.start = transport_operation::clock::now();
    operation.deadline = operation.start + settings_.timeout;
    return operation;
  }

  /// Ranks that cut their data in different places would read each other's bytes as their own.
  void agree(const transport_operation& operation) {
    struct terms {
      std::uint64_t segment_bytes;
      std::uint64_t message_bytes;
      std::uint64_t checked_order;
    };
    const terms own{settings_.segment_bytes, settings_.message_bytes, settings_.checked_order};
    std::vector<terms> all(static_cast<std::size_t>(size()));
    step_unchecked(operation, [&] {
      mpi_try(MPI_Iallgather(&own, sizeof(terms), MPI_BYTE, all.data(), sizeof(terms), MPI_BYTE,
                             channel_->comm(), channel_->collective()),
              "MPI_Iallgather");
      channel_->await_collective(operation);
    });
    for (std::size_t peer = 0; peer < all.size(); ++peer) {
      if (std::memcmp(&all[peer], &all[0], sizeof(terms)) == 0) continue;
      const auto text = [&](std::size_t r) {
        return "rank " + std::to_string(r) + " has segments of " +
               std::to_string(all[r].segment_bytes) + " bytes, messages of " +
               std::to_string(all[r].message_bytes) + " bytes, checked_order " +
               std::to_string(all[r].checked_order);
      };
      throw mismatch_error("ranks were given different options: " + text(0) + "; " + text(peer),
                           channel_->place(operation, static_cast<int>(peer)));
    }
  }

  void prepare() {
    const auto ranks = static_cast<std::size_t>(size());
    scratch_ = channel_->reserve(scratch_bytes());
    void* const records = channel_->reserve(ranks * sizeof(mpi_call_record));
    calls_ = {new (records) mpi_call_record[ranks], ranks};
    pieces_ = std::make_unique<std::byte[]>(ranks * sizeof(void*));
  }

  /// One step of all ranks: they compare what they were called for, then `move` moves the payload.
  template <class Move>
  void step(const transport_operation& operation, Move move) {
    guarded([&] {
      channel_->begin(operation);
      if (settings_.checked_order) compare_calls(operation);
      channel_->commit(operation);
      move();
    });
  }

  template <class Move>
  void step_unchecked(const transport_operation& operation, Move move) {
    guarded([&] {
      channel_->begin(operation);
      channel_->commit(operation);
      move();
    });
  }

  template <class Function>
  void guarded(Function function) {
    try {
      function();
    } catch (...) {
      channel_->give_up();
      throw;
    }
  }

  /// Throws: mismatch_error, on all ranks the same, when not all were called for the same.
  void compare_calls(const transport_operation& operation) {
    mpi_call_record& own = calls_[static_cast<std::size_t>(rank())];
    own = mpi_call_record::of(operation.call);
    for (int k = 0; k < channel_->peers(); ++k) {
      channel_->receive(0, k, &calls_[static_cast<std::size_t>(channel_->source(k))],
                        sizeof(mpi_call_record), mpi_channel::call_tag);
    }
    for (int k = 0; k < channel_->peers(); ++k) {
      channel_->send(0, k, &own, sizeof(mpi_call_record), mpi_channel::call_tag);
    }
    channel_->await_flight(operation, 0);
    const mpi_call_record& first = calls_[0];
    for (std::size_t peer = 1; peer < calls_.size(); ++peer) {
      if (calls_[peer].fingerprint == first.fingerprint) continue;
      const std::string reason = "rank 0 called " + first.describe() + ", rank " +
                                 std::to_string(peer) + " called " + calls_[peer].describe();
      const int other = static_cast<int>(peer) == rank() ? 0 : static_cast<int>(peer);
      channel_->words().set(failure_kind::mismatch, other, reason);
      throw mismatch_error(reason, channel_->place(operation, other));
    }
  }

  /// Cuts [0, total) into pieces and keeps as many of them on their way as there are flights:
  /// `post` starts one, `finish` uses it when it is there.
  template <class Post, class Finish>
  void pipeline(const transport_operation& operation, std::uint64_t total, std::uint64_t piece,
                Post post, Finish finish) {
    const std::uint64_t count = total / piece + (total % piece != 0 ? 1 : 0);
    const auto start = [&](std::uint64_t i) {
      post(i * piece, std::min(piece, total - i * piece), i % mpi_channel::flights);
    };
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, mpi_channel::flights); ++i) {
      start(i);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      channel_->await_flight(operation, i % mpi_channel::flights);
      finish(i * piece, std::min(piece, total - i * piece), i % mpi_channel::flights);
      if (count - i > mpi_channel::flights) start(i + mpi_channel::flights);
    }
  }

  std::uint64_t flight_bytes() const noexcept {
    return static_cast<std::uint64_t>(channel_->peers()) * settings_.segment_bytes;
  }
  std::byte* slot(std::size_t flight, int k) const noexcept {
    return scratch_ + flight * flight_bytes() +
           static_cast<std::uint64_t>(k) * settings_.segment_bytes;
  }

  /// The contributions of all ranks to one segment, in rank order.
  template <class T>
  std::span<const T* const> pieces(std::size_t flight, const T* own) noexcept {
    const T** const list = new (pieces_.get()) const T*[static_cast<std::size_t>(size())];
    list[rank()] = own;
    for (int k = 0; k < channel_->peers(); ++k) {
      list[channel_->source(k)] = reinterpret_cast<const T*>(slot(flight, k));
    }
    return {list, static_cast<std::size_t>(size())};
  }

  /// The channel outlives this object while MPI or a peer may still need it.
  void retire(failure_kind kind, std::string_view reason) noexcept {
    if (mpi_is_running()) channel_->depart(kind, reason);
    mpi_parking::park(std::move(channel_));
  }

  mpi_transport_settings settings_;
  std::unique_ptr<mpi_channel> channel_;
  std::byte* scratch_ = nullptr;
  std::span<mpi_call_record> calls_;
  std::unique_ptr<std::byte[]> pieces_;
};

static_assert(Transport<mpi_transport>);

}  // namespace zero::detail
