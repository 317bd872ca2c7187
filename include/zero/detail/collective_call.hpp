// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include <zero/detail/hash.hpp>
#include <zero/numeric/element_traits.hpp>

namespace zero::detail {

/// What a rank publishes when it enters a collective; any difference between ranks is an error.
struct collective_call {
  std::uint64_t sequence = 0;
  std::string_view operation;       // static storage
  std::string_view element;         // static storage
  std::string_view output_element;  // differs from `element` where a sum is not rounded
  std::uint32_t wire_id = 0;
  std::uint32_t output_wire_id = 0;
  std::uint64_t count = 0;  // of the full side
  int root = -1;
  std::uint32_t scale_bits = std::bit_cast<std::uint32_t>(1.0F);

  friend bool operator==(const collective_call&, const collective_call&) = default;

  /// A word that differs, but for a chance of 2^-64, between calls that differ.
  std::uint64_t fingerprint() const noexcept {
    hasher hash;
    hash.add(sequence)
        .add(operation)
        .add(std::uint64_t{wire_id})
        .add(std::uint64_t{output_wire_id});
    hash.add(count).add(static_cast<std::uint64_t>(root)).add(std::uint64_t{scale_bits});
    return hash.value();
  }

  std::string describe() const {
    std::string text(operation);
    text += " #" + std::to_string(sequence);
    if (!element.empty()) {
      text += " of " + std::to_string(count) + " x ";
      text += element;
    }
    if (output_wire_id != wire_id) {
      text += " into ";
      text += output_element;
    }
    if (root >= 0) text += " from root " + std::to_string(root);
    const auto scale = std::bit_cast<float>(scale_bits);
    if (scale_bits != std::bit_cast<std::uint32_t>(1.0F)) text += " x " + std::to_string(scale);
    return text;
  }
};

/// The call of an operation over `count` elements of T, on the full side.
template <class T>
collective_call describe_call(std::string_view operation, std::uint64_t count) {
  collective_call call;
  call.operation = operation;
  call.element = call.output_element = element_traits<T>::name;
  call.wire_id = call.output_wire_id = element_traits<T>::wire_id;
  call.count = count;
  return call;
}

/// The call of a reduce-scatter of T into U.
template <class T, class U>
collective_call describe_sum(std::uint64_t count, float scale) {
  collective_call call = describe_call<T>("reduce_scatter", count);
  call.output_element = element_traits<U>::name;
  call.output_wire_id = element_traits<U>::wire_id;
  call.scale_bits = std::bit_cast<std::uint32_t>(scale);
  return call;
}

}  // namespace zero::detail
