// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <zero/detail/collective_call.hpp>
#include <zero/detail/first_failure.hpp>

namespace zero::detail {

/// Copies as much of the text as fits; the rest is filled with zeros, the last byte always is one.
template <std::size_t Bytes>
void put_text(std::array<char, Bytes>& to, std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), Bytes - 1);
  std::memset(to.data(), 0, Bytes);
  if (length != 0) std::memcpy(to.data(), text.data(), length);
}

template <std::size_t Bytes>
std::string_view text_of(const std::array<char, Bytes>& from) noexcept {
  return {from.data(), ::strnlen(from.data(), Bytes)};
}

/// A collective_call as it travels: every rank sends it to every other one before the payload.
struct mpi_call_record {
  std::uint64_t fingerprint = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint32_t wire_id = 0;
  std::uint32_t output_wire_id = 0;
  std::uint32_t scale_bits = 0;
  std::int32_t root = -1;
  std::array<char, 24> operation{};
  std::array<char, 24> element{};
  std::array<char, 24> output_element{};

  static mpi_call_record of(const collective_call& call) noexcept {
    mpi_call_record record{.fingerprint = call.fingerprint(),
                           .sequence = call.sequence,
                           .count = call.count,
                           .wire_id = call.wire_id,
                           .output_wire_id = call.output_wire_id,
                           .scale_bits = call.scale_bits,
                           .root = call.root};
    put_text(record.operation, call.operation);
    put_text(record.element, call.element);
    put_text(record.output_element, call.output_element);
    return record;
  }

  /// The call as text; only where calls differ.
  std::string describe() const {
    return collective_call{.sequence = sequence,
                           .operation = text_of(operation),
                           .element = text_of(element),
                           .output_element = text_of(output_element),
                           .wire_id = wire_id,
                           .output_wire_id = output_wire_id,
                           .count = count,
                           .root = root,
                           .scale_bits = scale_bits}
        .describe();
  }
};

/// The last message that a rank sends to each of its peers on a communicator: it left, or it failed
/// and why. Everything that it takes part in was sent before.
struct mpi_last_word {
  std::uint64_t step = 0;  ///< the rank takes part in the steps before this one, and in no other
  std::uint32_t kind = 0;  ///< a failure_kind; none: its communicator was destroyed
  std::int32_t peer = -1;  ///< the rank to blame
  std::array<char, 496> reason{};

  failure_kind failure() const noexcept { return static_cast<failure_kind>(kind); }
  bool is_farewell() const noexcept { return failure() == failure_kind::none; }
};
static_assert(sizeof(mpi_last_word) == 512);

}  // namespace zero::detail
