// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <zero/error.hpp>

namespace zero {

/// Settings of a Gloo communicator. Every rank gives the same ones, but for interface and address.
struct gloo_options {
  /// How long a rank waits for its peers in one collective before it throws timeout_error.
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);

  /// How long the constructor waits until all ranks have come and are connected.
  std::chrono::nanoseconds setup_timeout = std::chrono::seconds(120);

  /// The network interface that peers reach this rank at: names in order of preference
  /// ("eth0,eth1"), what not to take ("^lo,docker"), or an address of this host; see
  /// choose_interface. Empty: loopback where all ranks run on one host, elsewhere the first
  /// interface that other hosts are likely to reach.
  std::string interface = {};

  /// Instead of an interface: the own host name or address that peers connect to.
  std::string address = {};

  /// A reduce-scatter moves and sums shards in pieces of this size.
  /// Units: bytes; rounded up to a multiple of 64.
  std::uint64_t segment_bytes = std::uint64_t{2} << 20;

  /// Pieces that are on their way from each peer at once.
  int depth = 2;

  /// Ranks compare operation, type, count, root and scale before they use what they received, and
  /// all throw the same mismatch_error. Costs one message of half a kilobyte per peer and call,
  /// which carries small payloads for nothing. Without it ranks that diverge wait for each other
  /// until the deadline: what they send never matches, so nothing is mixed up.
  bool checked_order = true;

  /// Set SIGPIPE to be ignored where it still has its default action, which ends the process when
  /// it writes to a peer that has died. The setting belongs to the whole process.
  bool ignore_sigpipe = true;
};

namespace detail {

constexpr std::uint64_t gloo_segment_alignment = 64;

/// Throws: usage_error that names the option.
inline void check_gloo_options(const gloo_options& options) {
  const auto refuse = [](const std::string& what) {
    throw usage_error("zero::gloo_options: " + what);
  };
  if (options.timeout <= std::chrono::nanoseconds::zero()) {
    refuse("timeout of " + std::to_string(options.timeout.count()) + " ns is not positive");
  }
  if (options.setup_timeout <= std::chrono::nanoseconds::zero()) {
    refuse("setup_timeout of " + std::to_string(options.setup_timeout.count()) +
           " ns is not positive");
  }
  if (!options.interface.empty() && !options.address.empty()) {
    refuse("both interface '" + options.interface + "' and address '" + options.address +
           "' are given");
  }
  constexpr std::uint64_t largest_segment = std::uint64_t{1} << 30;
  if (options.segment_bytes == 0 || options.segment_bytes > largest_segment) {
    refuse("segment_bytes is " + std::to_string(options.segment_bytes) +
           ", it has to be between 1 and 2^30");
  }
  constexpr int largest_depth = 64;
  if (options.depth < 1 || options.depth > largest_depth) {
    refuse("depth is " + std::to_string(options.depth) + ", it has to be between 1 and " +
           std::to_string(largest_depth));
  }
}

/// Options as they are used: checked, with timeouts that a clock can represent.
inline gloo_options effective_gloo_options(gloo_options options) {
  check_gloo_options(options);
  const std::chrono::nanoseconds longest = std::chrono::hours(24 * 3650);
  if (options.timeout > longest) options.timeout = longest;
  if (options.setup_timeout > longest) options.setup_timeout = longest;
  options.segment_bytes = (options.segment_bytes + gloo_segment_alignment - 1) /
                          gloo_segment_alignment * gloo_segment_alignment;
  return options;
}

}  // namespace detail
}  // namespace zero
