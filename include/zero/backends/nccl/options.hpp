// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include <zero/error.hpp>

namespace zero {

/// Settings of an NCCL communicator. Every rank gives the same ones.
struct nccl_options {
  /// How long a collective may take, from its call to its last byte, before it fails with a
  /// timeout_error. The work that the queue holds before it counts.
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);

  /// How long the constructor and split() wait until all ranks have come and are connected.
  std::chrono::nanoseconds setup_timeout = std::chrono::seconds(120);

  /// How often the watching thread looks for errors, deadlines, and peers that gave up.
  std::chrono::nanoseconds watch_interval = std::chrono::milliseconds(200);

  /// Blocks of a device that NCCL may take for one collective, so that kernels of the program run
  /// beside it; 0: as NCCL chooses.
  int min_blocks = 0;
  int max_blocks = 0;

  /// Ranks compare operation, type, count, root and scale through the store before each collective,
  /// and all throw the same mismatch_error. For finding a divergence: each call waits for all host
  /// threads. Without it ranks that diverge fail at the deadline, or NCCL damages memory.
  bool checked_order = false;
};

namespace detail {

/// Options as they are used: checked, with timeouts that a clock can represent.
/// Throws: usage_error that names the option.
inline nccl_options effective_nccl_options(nccl_options options) {
  // A deadline has to be representable; nobody waits for ten years.
  constexpr std::chrono::nanoseconds longest = std::chrono::hours(24 * 3650);
  const auto check = [longest](std::chrono::nanoseconds& time, const std::string& name) {
    if (time <= std::chrono::nanoseconds::zero()) {
      throw usage_error("zero::nccl_options: " + name + " of " + std::to_string(time.count()) +
                        " ns is not positive");
    }
    if (time > longest) time = longest;
  };
  check(options.timeout, "timeout");
  check(options.setup_timeout, "setup_timeout");
  check(options.watch_interval, "watch_interval");
  const bool is_inverted = options.max_blocks != 0 && options.max_blocks < options.min_blocks;
  if (options.min_blocks < 0 || options.max_blocks < 0 || is_inverted) {
    throw usage_error("zero::nccl_options: min_blocks " + std::to_string(options.min_blocks) +
                      " and max_blocks " + std::to_string(options.max_blocks) +
                      " have to be 0, or in order");
  }
  return options;
}

}  // namespace detail
}  // namespace zero
