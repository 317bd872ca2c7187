// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <zero/rendezvous/detail/file_presence.hpp>
#include <zero/rendezvous/detail/posix_files.hpp>
#include <zero/rendezvous/environment.hpp>
#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/file_store.hpp>
#include <zero/rendezvous/host.hpp>
#include <zero/rendezvous/memory_store.hpp>
#include <zero/rendezvous/store.hpp>
#include <zero/rendezvous/tcp_store.hpp>

namespace zero {

struct open_store_options {
  /// How long to wait for the other ranks.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
};

namespace detail {

/// Whether the descriptor is a socket that listens at the port. The one that a launcher handed over
/// is gone when a process opens its second store, and is none in programs that a rank starts.
inline bool listens_at(int descriptor, std::uint16_t port) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (descriptor < 0 ||
      ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    return false;
  }
  sockaddr_in6 address{};  // the port of an IPv4 address lies at the same place
  socklen_t address_length = sizeof address;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &address_length) == 0 &&
         ntohs(address.sin6_port) == port;
}

/// The part of the directory's path that all jobs of this user share.
inline std::string local_store_prefix(const launch_environment& environment) {
  const std::string& runtime = environment.runtime_directory;
  const bool has_runtime = !runtime.empty() && file_exists(runtime);
  return (has_runtime ? runtime : "/tmp") + "/zero-" + std::to_string(::geteuid()) + '-';
}

}  // namespace detail

/// Where the ranks of a job on one host meet when nobody gave an address: a directory that only
/// this user can have made.
/// Throws: rendezvous_error for a job without an id.
inline std::string local_store_directory(const launch_environment& environment) {
  if (environment.job_id.empty()) {
    throw rendezvous_error(
        "the launcher (" + environment.launcher +
            ") gives no job id, so the ranks have no place to meet; set ZERO_JOB_ID to a word that "
            "is new for each start, or MASTER_ADDR=127.0.0.1 and MASTER_PORT to a free port, on "
            "all ranks",
        {"launch environment", "", 0});
  }
  return detail::local_store_prefix(environment) + detail::name_for(environment.job_id);
}

/// Opens the store through which the ranks of a launched job find each other.
///
/// One process: a memory store. MASTER_ADDR given: a tcp_store that rank 0 holds there. All ranks
/// on one host: a file_store in a directory of this user, named after the job, which goes with the
/// last rank; what jobs left that were killed as a whole goes with the next one of this user.
/// Collective: all ranks.
/// Throws: what these stores throw; rendezvous_error where the ranks have no place to meet.
inline any_store open_store(const launch_environment& environment,
                            const open_store_options& options = {}) {
  if (environment.size == 1) return any_store::make<memory_store>();
  if (!environment.master_address.empty()) {
    tcp_store_options tcp;
    tcp.run_id = environment.job_id;
    tcp.timeout = options.timeout;
    if (detail::listens_at(environment.store_descriptor, environment.store_port)) {
      tcp.listening_descriptor = environment.store_descriptor;
    }
    return any_store::make<tcp_store>(environment.master_address, environment.store_port,
                                      environment.rank, environment.size, std::move(tcp));
  }
  if (environment.all_local) {
    const std::string directory = local_store_directory(environment);
    if (environment.rank == 0) {
      const std::string prefix = detail::local_store_prefix(environment);
      const auto slash = prefix.rfind('/');
      detail::remove_abandoned_directories(prefix.substr(0, slash), prefix.substr(slash + 1),
                                           this_process().machine);
    }
    return any_store::make<file_store>(
        directory, environment.rank, environment.size,
        file_store_options{.run_id = environment.job_id, .timeout = options.timeout});
  }
  throw rendezvous_error(
      "the " + std::to_string(environment.size) + " ranks (launcher: " + environment.launcher +
          ") may be on several hosts, and nobody says where rank 0 is: set MASTER_ADDR to its host "
          "and MASTER_PORT to a free port there, on all ranks, e.g. mpirun -x "
          "MASTER_ADDR=<host of rank 0> -x MASTER_PORT=29500 ..., or under Slurm export "
          "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)",
      {"launch environment", "", 0});
}

}  // namespace zero
