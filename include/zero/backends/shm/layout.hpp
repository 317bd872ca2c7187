// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <zero/backends/shm/system.hpp>
#include <zero/detail/collective_call.hpp>
#include <zero/detail/first_failure.hpp>

// What lies in the segments. Ranks are processes of one build of one program, at different
// addresses: no pointers, no virtual functions, and zeros are a valid start for everything.

namespace zero::detail {

/// A text of limited length; what does not fit is cut off.
template <std::size_t Capacity>
class fixed_text {
 public:
  void assign(std::string_view text) noexcept {
    size_ = static_cast<std::uint32_t>(std::min(text.size(), Capacity));
    std::copy_n(text.begin(), size_, characters_);
  }
  std::string_view view() const noexcept { return {characters_, size_}; }

 private:
  std::uint32_t size_;
  char characters_[Capacity];
};

/// A collective_call whose texts are readable in another process.
struct published_call {
  std::uint64_t sequence;
  std::uint64_t count;
  fixed_text<28> operation;
  fixed_text<28> element;
  fixed_text<28> output_element;
  std::uint32_t wire_id;
  std::uint32_t output_wire_id;
  std::int32_t root;
  std::uint32_t scale_bits;

  void assign(const collective_call& call) noexcept {
    sequence = call.sequence;
    count = call.count;
    operation.assign(call.operation);
    element.assign(call.element);
    output_element.assign(call.output_element);
    wire_id = call.wire_id;
    output_wire_id = call.output_wire_id;
    root = call.root;
    scale_bits = call.scale_bits;
  }
  /// Its texts refer to this object.
  collective_call view() const noexcept {
    return {.sequence = sequence,
            .operation = operation.view(),
            .element = element.view(),
            .output_element = output_element.view(),
            .wire_id = wire_id,
            .output_wire_id = output_wire_id,
            .count = count,
            .root = root,
            .scale_bits = scale_bits};
  }
};

/// Where in memory that every rank maps a range lies; block 0 stands for private memory.
struct block_reference {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;  // from the start of the owner's part
};

/// What a rank tells the others when it comes to a meeting.
struct meeting_note {
  published_call call;
  block_reference reference;
  segment_offer offer;
};

/// Why a rank failed: complete before the header names the rank, never changed after that.
struct published_failure {
  failure_kind kind;
  std::int32_t peer;
  fixed_text<440> reason;
};

/// One rank's part of the control segment. The rank alone writes it, but for `missing`.
struct rank_slot {
  /// Meetings this rank has come to. On a line of its own: every rank polls it.
  alignas(64) std::atomic<std::uint64_t> arrived;
  std::atomic<std::uint32_t> departed;
  std::atomic<std::uint32_t> missing;  // a peer's deadline passed while it waited for this rank
  /// Of this meeting and the one before, by the parity of the meeting's number.
  alignas(64) meeting_note notes[2];
  published_failure failure;
};

struct segment_header {
  segment_identity identity;
  std::uint64_t size;         // ranks
  std::uint64_t chunk_bytes;  // of each of the two halves of a window
  /// Changes when a meeting is complete and when a rank fails or leaves: what sleepers wait for.
  alignas(64) futex_word bell;
  /// 1 + the rank whose slot says why this communicator failed; 0 while it has not.
  alignas(64) std::atomic<std::uint32_t> failed;
};

static_assert(std::is_standard_layout_v<segment_header> && std::is_standard_layout_v<rank_slot>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
              "zero::shm: an atomic with a hidden lock does not work between processes");

/// Positions in the control segment: the header, the slots, and one window of two halves per rank.
struct segment_layout {
  static constexpr std::uint64_t page_bytes = 4096;
  /// Halves, and the pieces in them, start on cache lines.
  static constexpr std::uint64_t line_bytes = 64;

  std::uint64_t size;         // ranks
  std::uint64_t chunk_bytes;  // of a half of a window; a multiple of line_bytes

  static constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) noexcept {
    return (bytes + to - 1) / to * to;
  }
  static constexpr std::uint64_t to_pages(std::uint64_t bytes) noexcept {
    return round_up(bytes, page_bytes);
  }
  constexpr std::uint64_t slots() const noexcept { return to_pages(sizeof(segment_header)); }
  /// Of a rank; whole pages, so that each rank can take its own.
  constexpr std::uint64_t window_bytes() const noexcept { return to_pages(2 * chunk_bytes); }
  constexpr std::uint64_t window(std::uint64_t rank, std::uint64_t half) const noexcept {
    return slots() + to_pages(size * sizeof(rank_slot)) + rank * window_bytes() +
           half * chunk_bytes;
  }
  constexpr std::uint64_t bytes() const noexcept { return window(size, 0); }
};

}  // namespace zero::detail
