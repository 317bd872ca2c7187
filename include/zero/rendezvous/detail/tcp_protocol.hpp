// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <zero/rendezvous/store.hpp>

// The protocol of tcp_store. A request is a header, a key and a value, a reply is a header and a
// value; one reply per request, in order. All numbers are little-endian. Lengths are checked before
// anything is read or allocated.

namespace zero::detail {

enum class tcp_operation : std::uint16_t { hello = 1, gather, set, get, contains, remove };

enum class tcp_status : std::uint16_t {
  done = 1,
  absent,    ///< no such key, or not within the time that the request allowed
  refused,   ///< the ranks do not belong together; the value says why, and it stays so
  occupied,  ///< the store belongs to others; the value says to whom, a later try may succeed
  failed,    ///< the store could not do it; the value says why
};

template <class T, std::size_t Size>
void put_number(std::array<unsigned char, Size>& bytes, std::size_t offset, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes[offset + i] = static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

template <class T, std::size_t Size>
T get_number(const std::array<unsigned char, Size>& bytes, std::size_t offset) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<std::uint64_t>(bytes[offset + i]) << (8 * i);
  }
  return static_cast<T>(value);
}

inline constexpr std::uint32_t tcp_magic = 0x6f72657aU;  // "zero"
inline constexpr std::uint16_t tcp_version = 1;

struct tcp_request_header {
  static constexpr std::size_t bytes = 24;
  using buffer = std::array<unsigned char, bytes>;

  std::uint32_t magic = tcp_magic;
  std::uint16_t version = tcp_version;
  tcp_operation operation{};
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint64_t wait_milliseconds = 0;

  buffer encode() const noexcept {
    buffer to{};
    put_number(to, 0, magic);
    put_number(to, 4, version);
    put_number(to, 6, static_cast<std::uint16_t>(operation));
    put_number(to, 8, key_bytes);
    put_number(to, 12, value_bytes);
    put_number(to, 16, wait_milliseconds);
    return to;
  }

  static tcp_request_header decode(const buffer& from) noexcept {
    tcp_request_header header;
    header.magic = get_number<std::uint32_t>(from, 0);
    header.version = get_number<std::uint16_t>(from, 4);
    header.operation = static_cast<tcp_operation>(get_number<std::uint16_t>(from, 6));
    header.key_bytes = get_number<std::uint32_t>(from, 8);
    header.value_bytes = get_number<std::uint32_t>(from, 12);
    header.wait_milliseconds = get_number<std::uint64_t>(from, 16);
    return header;
  }
};

struct tcp_reply_header {
  static constexpr std::size_t bytes = 12;
  using buffer = std::array<unsigned char, bytes>;

  std::uint32_t magic = tcp_magic;
  std::uint16_t version = tcp_version;
  tcp_status status{};
  std::uint32_t value_bytes = 0;

  buffer encode() const noexcept {
    buffer to{};
    put_number(to, 0, magic);
    put_number(to, 4, version);
    put_number(to, 6, static_cast<std::uint16_t>(status));
    put_number(to, 8, value_bytes);
    return to;
  }

  static tcp_reply_header decode(const buffer& from) noexcept {
    tcp_reply_header header;
    header.magic = get_number<std::uint32_t>(from, 0);
    header.version = get_number<std::uint16_t>(from, 4);
    header.status = static_cast<tcp_status>(get_number<std::uint16_t>(from, 6));
    header.value_bytes = get_number<std::uint32_t>(from, 8);
    return header;
  }
};

/// The value of a hello; its key is the run id. The nonce is drawn by each store object, so that
/// further connections of one rank are told from a second process that claims to be that rank.
struct tcp_hello {
  static constexpr std::size_t bytes = 24;

  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint64_t nonce_low = 0;
  std::uint64_t nonce_high = 0;

  bool same_process(const tcp_hello& other) const noexcept {
    return nonce_low == other.nonce_low && nonce_high == other.nonce_high;
  }

  std::string encode() const {
    std::array<unsigned char, bytes> to{};
    put_number(to, 0, static_cast<std::uint32_t>(rank));
    put_number(to, 4, static_cast<std::uint32_t>(size));
    put_number(to, 8, nonce_low);
    put_number(to, 16, nonce_high);
    return {to.begin(), to.end()};
  }

  static std::optional<tcp_hello> decode(std::string_view from) noexcept {
    if (from.size() != bytes) return std::nullopt;
    std::array<unsigned char, bytes> copy{};
    for (std::size_t i = 0; i < bytes; ++i) copy[i] = static_cast<unsigned char>(from[i]);
    tcp_hello hello;
    hello.rank = static_cast<std::int32_t>(get_number<std::uint32_t>(copy, 0));
    hello.size = static_cast<std::int32_t>(get_number<std::uint32_t>(copy, 4));
    hello.nonce_low = get_number<std::uint64_t>(copy, 8);
    hello.nonce_high = get_number<std::uint64_t>(copy, 16);
    return hello;
  }
};

/// A stranger may send a hello and no more than that.
inline bool acceptable(const tcp_request_header& header, bool joined) noexcept {
  if (header.key_bytes > store_limits::key_bytes) return false;
  if (!joined) {
    return header.operation == tcp_operation::hello && header.value_bytes == tcp_hello::bytes;
  }
  return header.operation >= tcp_operation::gather && header.operation <= tcp_operation::remove &&
         header.value_bytes <= store_limits::value_bytes;
}

}  // namespace zero::detail
