// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace gpt {

/// Tells on stderr how far a run is: a single line that is rewritten on a terminal, elsewhere one
/// line every ten seconds. Used by one thread at a time.
class progress {
 public:
  explicit progress(bool is_quiet);
  ~progress();
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  /// Names what runs next.
  void begin(const std::string& what);
  void step(std::uint64_t step, std::uint64_t steps, double loss);
  /// Clears the line, so that other output may follow.
  void end();

 private:
  using clock = std::chrono::steady_clock;

  bool is_quiet_;
  bool is_terminal_;
  bool has_line_ = false;
  std::string what_;
  clock::time_point start_;
  clock::time_point last_;
};

}  // namespace gpt
