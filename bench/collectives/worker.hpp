// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <span>
#include <string>

#include <zero/rendezvous/store.hpp>

#include "contender.hpp"

namespace collectives_bench {

/// A rank's side: it does what the program asks for until the program closes the channel.
struct worker {
  int channel;
  rank_place place;
  /// The threads whose CPU time belongs to this rank.
  clockid_t cpu_clock;
  /// Returns when all ranks have come; not a contender's own, so that it favours none.
  std::function<void()> meet;

  /// Returns false where a contender failed; the program was told why.
  bool serve(const contender_map& contenders) const;
};

/// Bytes of this process or of a file that others map, aligned to a page, all pages touched.
class memory_block {
 public:
  explicit memory_block(std::uint64_t bytes);
  memory_block(const memory_block&) = delete;
  memory_block& operator=(const memory_block&) = delete;
  ~memory_block();

  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

/// A barrier of sleeping threads or forked processes; made before they start.
class shared_barrier {
 public:
  explicit shared_barrier(int size);
  shared_barrier(const shared_barrier&) = delete;
  shared_barrier& operator=(const shared_barrier&) = delete;
  ~shared_barrier();

  void wait() noexcept { ::pthread_barrier_wait(barrier_); }

 private:
  pthread_barrier_t* barrier_;
};

// The ranks of each kind of team, run until the program closes their channels. `bytes` is the
// largest full range. They return the exit code of their process.

/// All ranks as threads of this process. channels[r] is rank r's.
int run_thread_ranks(std::span<const int> channels, shared_barrier& barrier, std::uint64_t bytes);
/// One rank; the ranks find each other in `folder`.
int run_process_rank(int channel, rank_place place, shared_barrier& barrier,
                     const std::string& folder, std::uint64_t bytes);
/// One rank of an MPI job; it connects to the program through the socket of that name.
int run_mpi_rank(const std::string& socket_name, std::uint64_t bytes);

/// The first message of an MPI rank.
struct mpi_greeting {
  std::int32_t rank = 0;
};

// Contenders that need a library of their own.

/// One raw Gloo context per rank, and a communicator of the library for each set of options.
void add_gloo_contenders(contender_map& to, rank_place place, rank_memory memory,
                         zero::any_store store);

}  // namespace collectives_bench
