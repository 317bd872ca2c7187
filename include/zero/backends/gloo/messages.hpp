// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include <zero/detail/collective_call.hpp>
#include <zero/detail/first_failure.hpp>

namespace zero::detail {

// What ranks tell each other besides payload: fixed sizes, on slots of their own. Ranks of one
// world run the same program, so the messages are these objects as they lie in memory.

/// Why a communicator failed, in a form that travels.
struct gloo_failure {
  failure_kind kind = failure_kind::none;
  int peer = -1;  // the rank to blame, -1 where it is unknown
  /// The first operation that cannot be completed. Who failed after it had completed one does not
  /// keep its peers from completing it.
  std::uint64_t since = 0;
  std::array<std::uint64_t, 16> missing{};  // one bit per rank that a timeout waited for
  std::string reason;

  static constexpr int mask_ranks = 64 * 16;

  void add_missing(int rank) noexcept {
    if (rank < mask_ranks) missing[index(rank)] |= bit(rank);
  }
  bool is_missing(int rank) const noexcept {
    return rank < mask_ranks && (missing[index(rank)] & bit(rank)) != 0;
  }

 private:
  static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank) / 64; }
  static std::uint64_t bit(int rank) noexcept {
    return std::uint64_t{1} << (static_cast<unsigned>(rank) % 64);
  }
};

/// Copies at most Size - 1 characters and ends them with a null.
template <std::size_t Size>
void copy_text(std::array<char, Size>& to, std::string_view text) noexcept {
  to.fill('\0');
  std::copy_n(text.data(), std::min(text.size(), Size - 1), to.data());
}

/// A rank's last message: it leaves, or it has failed and says why.
struct gloo_announcement {
  enum class kind : std::uint32_t { goodbye, failure };

  kind what = kind::goodbye;
  std::uint32_t failure = 0;  // failure_kind
  std::int32_t blamed = -1;
  std::uint64_t since = 0;  // the first operation that the sender takes no part in any more
  std::array<std::uint64_t, 16> missing{};
  std::array<char, 352> reason{};

  static gloo_announcement goodbye(std::uint64_t since) noexcept {
    gloo_announcement message;
    message.since = since;
    return message;
  }

  static gloo_announcement of(const gloo_failure& failure) noexcept {
    gloo_announcement message;
    message.what = kind::failure;
    message.failure = static_cast<std::uint32_t>(failure.kind);
    message.blamed = failure.peer;
    message.since = failure.since;
    message.missing = failure.missing;
    copy_text(message.reason, failure.reason);
    return message;
  }

  gloo_failure as_failure() const {
    gloo_failure result;
    result.kind = static_cast<failure_kind>(failure);
    result.peer = blamed;
    result.since = since;
    result.missing = missing;
    result.reason = reason.data();
    return result;
  }
};
static_assert(std::is_trivially_copyable_v<gloo_announcement>);

/// What a rank calls, sent ahead of its payload; a payload of a few bytes rides along.
struct gloo_call_header {
  static constexpr std::uint64_t payload_bytes = 256;

  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint32_t wire_id = 0;
  std::uint32_t output_wire_id = 0;
  std::int32_t root = -1;
  std::uint32_t scale_bits = 0;
  std::array<char, 24> operation{};
  std::array<char, 24> element{};
  std::array<char, 24> output_element{};
  std::array<std::byte, payload_bytes> payload{};

  void set_call(const collective_call& call) noexcept {
    sequence = call.sequence;
    count = call.count;
    wire_id = call.wire_id;
    output_wire_id = call.output_wire_id;
    root = call.root;
    scale_bits = call.scale_bits;
    copy_text(operation, call.operation);
    copy_text(element, call.element);
    copy_text(output_element, call.output_element);
  }

  /// The call; its texts lie in this header.
  collective_call call() const noexcept {
    collective_call result;
    result.sequence = sequence;
    result.operation = operation.data();
    result.element = element.data();
    result.output_element = output_element.data();
    result.wire_id = wire_id;
    result.output_wire_id = output_wire_id;
    result.count = count;
    result.root = root;
    result.scale_bits = scale_bits;
    return result;
  }
};
static_assert(std::is_trivially_copyable_v<gloo_call_header>);

/// The slots of a communicator. Gloo's own collectives use first bytes 0x01 to 0x08.
struct gloo_slots {
  static constexpr std::uint64_t prefix = std::uint64_t{0x40} << 56U;
  static constexpr std::uint64_t lifeline = prefix | 1;  // received on, never sent on
  static constexpr std::uint64_t announcement = prefix | 2;
  static constexpr std::uint64_t header = prefix | 3;

  /// The slot of a call's payload. Ranks that differ in anything that decides the size of a message
  /// must not meet on a slot: Gloo ends the process when a message is larger than its receiver, and
  /// leaves the tail of the receiver as it was when the message is smaller.
  static std::uint64_t payload(const collective_call& call, std::uint64_t segment_bytes) noexcept {
    hasher hash;
    hash.add(call.fingerprint()).add(segment_bytes);
    // 24 bits of the sequence number, never 0 so that no slot above is met, and 31 of the hash.
    const std::uint64_t number = (call.sequence & 0xFFFFFFU) << 31U;
    return prefix | (std::uint64_t{1} << 55U) | number | (hash.value() >> 33U);
  }
};

}  // namespace zero::detail
