// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <unistd.h>

#include <cstdio>

namespace gpt {

progress::progress(bool is_quiet)
    : is_quiet_(is_quiet),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_(clock::now()),
      last_(start_) {}

progress::~progress() {
  end();
}

void progress::begin(const std::string& what) {
  what_ = what;
}

void progress::step(std::uint64_t step, std::uint64_t steps, double loss) {
  if (is_quiet_) {
    return;
  }
  const auto now = clock::now();
  const auto pause = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10);
  if (now - last_ < pause) {
    return;
  }
  last_ = now;
  const std::chrono::duration<double> elapsed = now - start_;
  std::fprintf(stderr, "%s%s: step %llu of %llu, loss %.3f, %.0f s%s", is_terminal_ ? "\r" : "",
               what_.c_str(), static_cast<unsigned long long>(step),
               static_cast<unsigned long long>(steps), loss, elapsed.count(),
               is_terminal_ ? "   " : "\n");
  has_line_ = is_terminal_;
}

void progress::end() {
  if (has_line_) {
    std::fprintf(stderr, "\r\033[K");
    has_line_ = false;
  }
}

}  // namespace gpt
