// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <zero/rendezvous/store.hpp>

#include "contender.hpp"
#include "wire.hpp"

namespace collectives_bench {

/// What a collective over TCP cannot beat by much: every rank sends as many bytes to every other
/// one, over plain loopback sockets, both directions at once, and does nothing with them. What
/// would be summed lands in a small buffer, over and over.
class socket_contender final : public contender {
 public:
  /// `sockets` has one per peer, in the order of ranks.
  socket_contender(rank_place place, rank_memory memory, std::vector<descriptor> sockets);

  void run(const workload& load) override;
  const std::byte* result(const workload& load) const override;

 private:
  /// What is left to move to and from one peer.
  struct lane {
    int socket = -1;
    const std::byte* outgoing = nullptr;
    std::uint64_t to_send = 0;
    std::byte* incoming = nullptr;  // null: into the landing buffer
    std::uint64_t to_receive = 0;
  };

  bool send_some(lane& to);
  bool receive_some(lane& from);
  void sleep_until_ready();

  std::vector<descriptor> sockets_;
  std::vector<lane> lanes_;
  std::vector<std::byte> landing_;
};

/// Throws: std::system_error, and what a store throws when a rank does not come.
std::vector<descriptor> connect_loopback(zero::any_store store, rank_place place,
                                         std::chrono::seconds limit);

}  // namespace collectives_bench
