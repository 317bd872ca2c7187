// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/shm/layout.hpp>
#include <zero/backends/shm/memory.hpp>
#include <zero/backends/shm/system.hpp>
#include <zero/backends/shm/world.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// Bytes between the processes of one host.
///
/// An operation starts with a meeting at which ranks compare their calls. Two ways lead on, and all
/// ranks see from the notes which one it is:
///   direct  the ranges lie in memory that all ranks map: peers are read where their data lies, and
///           a second meeting says that all are done reading;
///   staged  ranks copy a chunk into their windows, meet, and read the peers' windows: one meeting
///           per chunk, because windows have two halves that are used in turn.
/// The first chunk is staged before the first meeting: what fits into it takes one meeting in all.
class shm_transport {
 public:
  shm_transport(std::shared_ptr<shm_world> world, std::chrono::nanoseconds timeout)
      : world_(std::move(world)),
        timeout_(timeout),
        pointers_(
            std::make_unique<std::byte[]>(static_cast<std::size_t>(size()) * sizeof(const void*))) {
  }

  static constexpr std::string_view backend_name() noexcept { return "shm"; }
  int rank() const noexcept { return world_->rank(); }
  int size() const noexcept { return world_->size(); }
  std::chrono::nanoseconds timeout() const noexcept { return timeout_; }

  template <class T, class Fold>
  void reduce_scatter(const transport_operation& operation, const T* in,
                      std::uint64_t shard_elements, Fold&& fold) {
    const std::uint64_t most = piece_bytes() / sizeof(T);
    const T* const own = in + index(rank()) * shard_elements;
    const auto stage = [&](std::uint64_t first, std::uint64_t count) {
      std::byte* const window = world_->next_window();
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank()) continue;
        copy(window + piece_position(rank(), peer), in + index(peer) * shard_elements + first,
             count * sizeof(T));
      }
    };
    world_->require_usable(operation);
    std::uint64_t count = std::min(most, shard_elements);
    stage(0, count);
    enter(operation, in, index(size()) * shard_elements * sizeof(T));
    if (shard_elements > most && all_lie_in_blocks()) {
      fold(list_pieces<T>([&](int peer) {
             return peer == rank() ? own
                                   : reinterpret_cast<const T*>(referred(peer)) +
                                         index(rank()) * shard_elements;
           }),
           std::uint64_t{0}, shard_elements);
      return world_->meet_after_reading(operation);
    }
    for (std::uint64_t first = 0;;) {
      if (count != 0) {
        fold(list_pieces<T>([&](int peer) {
               return peer == rank() ? own + first
                                     : reinterpret_cast<const T*>(world_->window(peer) +
                                                                  piece_position(peer, rank()));
             }),
             first, count);
      }
      first += count;
      if (first == shard_elements) return;
      count = std::min(most, shard_elements - first);
      stage(first, count);
      world_->meet(operation);
    }
  }

  void all_gather(const transport_operation& operation, const std::byte* in, std::byte* out,
                  std::uint64_t shard_bytes) {
    const std::uint64_t most = world_->chunk_bytes();
    world_->require_usable(operation);
    std::uint64_t count = std::min(most, shard_bytes);
    copy(world_->next_window(), in, count);
    enter(operation, in, shard_bytes);
    // Each rank starts behind its own shard, so that not all read the same peer at once.
    const auto for_each_peer = [&](auto visit) {
      for (int step = 1; step < size(); ++step) {
        const int peer = (rank() + step) % size();
        visit(peer, out + index(peer) * shard_bytes);
      }
    };
    std::byte* const own = out + index(rank()) * shard_bytes;
    if (shard_bytes > most && all_lie_in_blocks()) {
      copy(own, in, shard_bytes);
      for_each_peer([&](int peer, std::byte* shard) { copy(shard, referred(peer), shard_bytes); });
      return world_->meet_after_reading(operation);
    }
    for (std::uint64_t first = 0;;) {
      copy(own + first, in + first, count);
      for_each_peer(
          [&](int peer, std::byte* shard) { copy(shard + first, world_->window(peer), count); });
      first += count;
      if (first == shard_bytes) return;
      count = std::min(most, shard_bytes - first);
      copy(world_->next_window(), in + first, count);
      world_->meet(operation);
    }
  }

  void broadcast(const transport_operation& operation, std::byte* values, std::uint64_t bytes,
                 int root) {
    const std::uint64_t most = world_->chunk_bytes();
    const bool is_root = rank() == root;
    world_->require_usable(operation);
    std::uint64_t count = std::min(most, bytes);
    if (is_root) copy(world_->next_window(), values, count);
    enter(operation, values, bytes);
    if (bytes > most && world_->note(root).reference.block != 0) {
      if (!is_root) copy(values, referred(root), bytes);
      return world_->meet_after_reading(operation);
    }
    for (std::uint64_t first = 0;;) {
      if (!is_root) copy(values + first, world_->window(root), count);
      first += count;
      if (first == bytes) return;
      count = std::min(most, bytes - first);
      if (is_root) copy(world_->next_window(), values + first, count);
      world_->meet(operation);
    }
  }

  void interrupt(std::string_view reason) noexcept {
    world_->record(failure_kind::aborted, rank(), reason);
  }
  void leave() noexcept { world_->leave(); }

  std::unique_ptr<shm_transport> split(std::span<const int> members,
                                       const transport_operation& operation) {
    const segment_layout layout{members.size(), world_->chunk_bytes()};
    shared_segment segment =
        share(operation, members.front(), [&] { return create_control_segment(layout); });
    int new_rank = 0;
    std::vector<peer_process> peers;
    for (const int member : members) {
      if (member == rank()) new_rank = static_cast<int>(peers.size());
      peers.push_back(world_->peers()[static_cast<std::size_t>(member)]);
    }
    return std::make_unique<shm_transport>(
        std::make_shared<shm_world>(std::move(segment), layout, new_rank, std::move(peers), world_),
        timeout_);
  }

  /// Memory of which each rank owns a part of `bytes`.
  std::shared_ptr<shm_block> make_block(std::uint64_t bytes, const transport_operation& operation) {
    std::erase_if(blocks_, [&](const auto& block) { return block->is_released_by(size()); });
    const std::uint64_t id = next_block_++;
    shared_segment segment = share(operation, 0, [&] {
      return shared_segment::create(shm_block::segment_bytes(size(), bytes));
    });
    auto block = std::make_shared<shm_block>(std::move(segment), id, rank(), bytes);
    blocks_.push_back(block);
    world_->meet(operation);  // all have their pages, or all learn who has not
    return block;
  }

  /// A control segment of zeros but for its header.
  static shared_segment create_control_segment(const segment_layout& layout) {
    shared_segment segment = shared_segment::create(layout.bytes());
    auto& header = *reinterpret_cast<segment_header*>(segment.base());
    header.size = layout.size;
    header.chunk_bytes = layout.chunk_bytes;
    return segment;
  }

 private:
  static constexpr std::uint64_t line = segment_layout::line_bytes;

  static std::uint64_t index(int rank) noexcept { return static_cast<std::uint64_t>(rank); }

  static void copy(void* to, const void* from, std::uint64_t bytes) noexcept {
    if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
  }

  /// A window holds a piece for every rank but its owner; pieces start on cache lines.
  std::uint64_t piece_bytes() const noexcept {
    return world_->chunk_bytes() / index(size() - 1) / line * line;
  }
  std::uint64_t piece_position(int owner, int reader) const noexcept {
    return index(reader < owner ? reader : reader - 1) * piece_bytes();
  }

  /// The first meeting of an operation. Throws mismatch_error on every rank where calls differ.
  void enter(const transport_operation& operation, const void* range, std::uint64_t bytes,
             const segment_offer& offer = {}) {
    meeting_note& note = world_->next_note();
    note.call.assign(operation.call);
    note.reference = reference_to(static_cast<const std::byte*>(range), bytes);
    note.offer = offer;
    world_->meet(operation);
    for (int peer = 0; peer < size(); ++peer) {
      if (!(world_->note(peer).call.view() == operation.call)) throw_mismatch(operation);
    }
  }

  /// Each rank finds the same two: rank 0 and the first that differs from it.
  [[noreturn]] void throw_mismatch(const transport_operation& operation) const {
    const collective_call first = world_->note(0).call.view();
    int odd = 1;
    while (world_->note(odd).call.view() == first) ++odd;
    const std::string reason = "rank 0 called " + first.describe() + ", rank " +
                               std::to_string(odd) + " called " +
                               world_->note(odd).call.view().describe();
    world_->record(failure_kind::mismatch, odd, reason);
    throw mismatch_error(reason, world_->describe_place(operation, rank() == odd ? 0 : odd));
  }

  block_reference reference_to(const std::byte* first, std::uint64_t bytes) const noexcept {
    for (const auto& block : blocks_) {
      if (!block->holds(first, bytes)) continue;
      return {block->id(), static_cast<std::uint64_t>(first - block->part(rank()))};
    }
    return {};
  }
  bool all_lie_in_blocks() const noexcept {
    for (int peer = 0; peer < size(); ++peer) {
      if (world_->note(peer).reference.block == 0) return false;
    }
    return true;
  }
  /// Where the range that this peer entered with lies here.
  const std::byte* referred(int peer) const noexcept {
    const block_reference& reference = world_->note(peer).reference;
    std::size_t i = 0;
    while (blocks_[i]->id() != reference.block) ++i;
    return blocks_[i]->part(peer) + reference.offset;
  }

  /// piece(rank) of every rank, listed in storage of this transport.
  template <class T, class Piece>
  std::span<const T* const> list_pieces(Piece piece) noexcept {
    const T** first = nullptr;
    for (int peer = size() - 1; peer >= 0; --peer) {
      first = new (pointers_.get() + index(peer) * sizeof(const T*)) const T*(piece(peer));
    }
    return {first, static_cast<std::size_t>(size())};
  }

  /// A segment that `creator` makes and every rank whose creator it is maps.
  template <class Create>
  shared_segment share(const transport_operation& operation, int creator, Create create) {
    world_->require_usable(operation);
    std::optional<shared_segment> segment;
    if (creator == rank()) segment = create();
    enter(operation, nullptr, 0, segment ? segment->offer() : segment_offer{});
    if (!segment) segment = shared_segment::open(world_->note(creator).offer);
    world_->meet(operation);  // all have opened the creator's descriptor
    segment->close_descriptor();
    return *std::move(segment);
  }

  std::shared_ptr<shm_world> world_;
  std::chrono::nanoseconds timeout_;
  std::vector<std::shared_ptr<shm_block>> blocks_;
  std::uint64_t next_block_ = 1;
  std::unique_ptr<std::byte[]> pointers_;
};

static_assert(Transport<shm_transport>);

}  // namespace zero::detail
