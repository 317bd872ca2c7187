// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace gpt {

/// XXH64 with seed 0 over bytes that come in pieces.
class xxh64 {
 public:
  xxh64();
  ~xxh64();
  xxh64(const xxh64&) = delete;
  xxh64& operator=(const xxh64&) = delete;

  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// 16 lower-case hexadecimal digits.
std::string hex_digits(std::uint64_t value);

}  // namespace gpt
