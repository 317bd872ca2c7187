// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "contender.hpp"

// What the program and its ranks tell each other. Both are the same program on the same host, so
// messages are these objects as they lie in memory.

namespace collectives_bench {

/// An open file that is closed when its owner goes.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor();

  int number() const noexcept { return number_; }

 private:
  int number_ = -1;
};

/// A number as Linux returns it: throws std::system_error where it is negative.
int checked(int result, const std::string& what);

enum class command : std::uint32_t { verify, measure };

struct request {
  command what = command::verify;
  contender_id subject = contender_id::copy;
  workload load;
  std::uint32_t iterations = 1;
};

struct reply {
  double seconds = 0;      ///< of one iteration, on this rank
  double cpu_seconds = 0;  ///< of one iteration, all threads of this rank
  std::array<char, 496> failure{};

  void set_failure(std::string_view text) noexcept;
  std::string_view failure_text() const noexcept { return failure.data(); }
};

/// From now on SIGINT and SIGTERM make receive_bytes throw, so that destructors end the ranks.
void interrupt_by_signals();

/// Throws: std::runtime_error when the other side has gone.
void send_bytes(int to, std::span<const std::byte> bytes);
/// Returns false when the other side has gone before the first byte.
/// Throws: std::runtime_error when it goes later, or the limit passes.
bool receive_bytes(int from, std::span<std::byte> bytes, std::chrono::milliseconds limit);

template <class T>
void send_object(int to, const T& object) {
  send_bytes(to, std::as_bytes(std::span(&object, 1)));
}
template <class T>
bool receive_object(int from, T& object, std::chrono::milliseconds limit) {
  return receive_bytes(from, std::as_writable_bytes(std::span(&object, 1)), limit);
}

}  // namespace collectives_bench
