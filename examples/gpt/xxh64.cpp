// SPDX-License-Identifier: Apache-2.0
#include "xxh64.hpp"

#include <xxhash.h>

#include <bit>
#include <new>

namespace gpt {

// The hash is defined over little-endian elements, and hashes memory as it lies.
static_assert(std::endian::native == std::endian::little);

struct xxh64::state {
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> handle{XXH64_createState(),
                                                                    &XXH64_freeState};
};

xxh64::xxh64() : state_(std::make_unique<state>()) {
  if (!state_->handle || XXH64_reset(state_->handle.get(), 0) != XXH_OK) {
    throw std::bad_alloc();
  }
}

xxh64::~xxh64() = default;

void xxh64::add(std::span<const std::byte> bytes) {
  // The library refuses a null pointer even where there is nothing to read.
  if (!bytes.empty()) {
    XXH64_update(state_->handle.get(), bytes.data(), bytes.size());
  }
}

std::uint64_t xxh64::value() const {
  return XXH64_digest(state_->handle.get());
}

std::string hex_digits(std::uint64_t value) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; value /= 16) {
    text[i] = digits[value % 16];
  }
  return text;
}

}  // namespace gpt
