// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <zero/numeric/bfloat16.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/numeric/float16.hpp>

// Sums over ranks as the simulated NCCL makes them, without the library's kernels.

namespace zero::test::simulated {

struct term {
  const std::byte* values;
  bool is_scaled;
  double scale;
};

/// The order of the rank_tree, in the compute type, rounded once.
constexpr int tree_order = -1;

inline bool is_summed(ncclDataType_t type) {
  return type == ncclFloat16 || type == ncclFloat32 || type == ncclFloat64 || type == ncclBfloat16;
}

inline std::size_t element_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

template <class T>
class typed_sum {
  using compute_type = typename element_traits<T>::compute_type;

 public:
  typed_sum(const std::vector<term>& terms, int first) : terms_(terms), first_(first) {}

  void write(std::byte* out, std::size_t count) const {
    std::vector<compute_type> values(terms_.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t t = 0; t < terms_.size(); ++t) values[t] = load(terms_[t], i);
      const T result = T(first_ == tree_order ? tree(values) : ring(values));
      std::memcpy(out + i * sizeof(T), &result, sizeof(T));
    }
  }

 private:
  /// The pre-multiplied input is rounded to the type of the collective.
  static compute_type load(const term& t, std::size_t i) {
    T value;
    std::memcpy(&value, t.values + i * sizeof(T), sizeof(T));
    if (!t.is_scaled) return static_cast<compute_type>(value);
    const auto scale = static_cast<compute_type>(t.scale);
    return static_cast<compute_type>(T(static_cast<compute_type>(value) * scale));
  }

  /// Neighbours in pairs, level by level; one without a neighbour moves up as it is.
  static compute_type tree(std::vector<compute_type> values) {
    std::size_t count = values.size();
    while (count > 1) {
      std::size_t next = 0;
      for (std::size_t i = 0; i < count; i += 2) {
        values[next++] = i + 1 < count ? values[i] + values[i + 1] : values[i];
      }
      count = next;
    }
    return values[0];
  }

  compute_type ring(const std::vector<compute_type>& values) const {
    const std::size_t n = values.size();
    const auto first = static_cast<std::size_t>(first_);
    compute_type sum = values[first];
    for (std::size_t i = 1; i < n; ++i) {
      sum = static_cast<compute_type>(T(sum + values[(first + i) % n]));
    }
    return sum;
  }

  const std::vector<term>& terms_;
  int first_;
};

/// Sums `count` elements; `first` is the rank that a ring starts at, or tree_order.
inline void sum(ncclDataType_t type, const std::vector<term>& terms, int first, std::byte* out,
                std::size_t count) {
  switch (type) {
    case ncclFloat16:
      return typed_sum<float16>(terms, first).write(out, count);
    case ncclBfloat16:
      return typed_sum<bfloat16>(terms, first).write(out, count);
    case ncclFloat64:
      return typed_sum<double>(terms, first).write(out, count);
    default:
      return typed_sum<float>(terms, first).write(out, count);
  }
}

inline double value_at(ncclDataType_t type, const std::byte* from) {
  const auto read = [from](auto value) {
    std::memcpy(&value, from, sizeof value);
    if constexpr (std::is_same_v<decltype(value), double>)
      return value;
    else
      return static_cast<double>(static_cast<float>(value));
  };
  switch (type) {
    case ncclFloat16:
      return read(float16());
    case ncclBfloat16:
      return read(bfloat16());
    case ncclFloat64:
      return read(double());
    default:
      return read(float());
  }
}

}  // namespace zero::test::simulated
