// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <zero/backends/mpi/call.hpp>
#include <zero/backends/mpi/environment.hpp>
#include <zero/backends/mpi/transport.hpp>
#include <zero/communicator.hpp>
#include <zero/detail/transport_communicator.hpp>
#include <zero/error.hpp>

namespace zero {

/// What happens after an operation was given up that MPI cannot take back.
enum class mpi_on_failure {
  /// MPI_Finalize ends the job by MPI_Abort with exit code 1 instead of waiting for ever.
  abort_job,
  /// The program ends the job itself: it must not call MPI_Finalize then.
  throw_only,
};

/// Settings of an mpi_communicator; but for the timeout the same on all ranks.
struct mpi_options {
  /// How long a rank waits for its peers in one operation before it throws timeout_error.
  std::chrono::nanoseconds timeout = std::chrono::minutes(5);
  /// Whether ranks tell each other what they were called for before data move, so that calls that
  /// differ are a mismatch_error on every rank. Without it they are an error of MPI, a timeout or
  /// wrong data.
  bool checked_order = true;
  mpi_on_failure on_failure = mpi_on_failure::abort_job;
  /// A reduce-scatter moves this many bytes to each peer at a time, or less where memory for two
  /// such segments from every peer would exceed `scratch_bytes`.
  std::uint64_t segment_bytes = std::uint64_t{4} << 20U;
  std::uint64_t scratch_bytes = std::uint64_t{64} << 20U;
  /// Larger messages are cut. MPI 3 counts with int, so 2^31 - 1 is the most.
  std::uint64_t message_bytes = std::uint64_t{1} << 30U;
};

/// One rank of an MPI communicator, which may be MPI_COMM_WORLD or any intracommunicator.
///
/// Sums are made by the library's own fold in rank_tree order, not by MPI: the bits are those of
/// every other rank_tree backend, and 16-bit types are no different from others. Initialising MPI
/// is the program's business (MPI_Init_thread, or mpi_environment), and so is MPI_Finalize, after
/// the communicators are destroyed. Operations come from one thread at a time; from another thread
/// than the one that made the communicator (as under `overlapped`) only where MPI was initialised
/// with MPI_THREAD_SERIALIZED or more. abort() may come from any thread; it reaches peers at once
/// under MPI_THREAD_MULTIPLE and from the thread that operates, else when this rank is inside an
/// operation or its communicator is destroyed.
///
/// Failure. A rank that is killed or exits ends the whole job: MPI's launcher kills the others,
/// with a non-zero exit code, and none of them sees an error. What a living rank can tell (an
/// abort, a mismatch, a timeout, a rank that left early) is a typed error on every rank, and the
/// program goes on to its handlers: it can write what it has, say what went wrong, and return from
/// main with the exit code it likes. It cannot repair the communicator. Where data were on their
/// way when a rank gave up, MPI has no means to take the operation back: the buffers of that call
/// must then stay valid as long as MPI runs, and MPI_Finalize ends the job (`mpi_on_failure`).
/// Collective: construction, split, and every operation but rank, size, abort, claim and unclaim;
/// all ranks, same order, one call at a time per rank. Nothing here allocates in an operation
/// unless it throws; MPI itself may.
/// Throws: aborted_error, mismatch_error, timeout_error; usage_error for wrong ranges, before peers
/// are involved.
class mpi_communicator : public detail::transport_communicator<detail::mpi_transport> {
  using base = detail::transport_communicator<detail::mpi_transport>;

 public:
  /// Works on a duplicate of `comm`: no message of the program can get in between.
  /// Throws: usage_error when MPI is not running or an option cannot be used; mismatch_error when
  /// ranks give different options; timeout_error when a rank does not come.
  explicit mpi_communicator(MPI_Comm comm, const mpi_options& options = {})
      : base(std::make_unique<detail::mpi_transport>(comm, settings(comm, options))) {}

  /// The part of the ranks that gave the same color, in rank order, with the same options. An abort
  /// of this communicator reaches it, not the other way round.
  mpi_communicator split(int color) { return split_into<mpi_communicator>(color); }

  /// Memory for what peers send in a reduce-scatter.
  std::uint64_t scratch_bytes() noexcept { return transport().scratch_bytes(); }

 private:
  friend base;
  using base::base;

  static constexpr std::uint64_t smallest_segment_bytes = 64;
  static constexpr std::uint64_t largest_message_bytes = (std::uint64_t{1} << 31U) - 1;

  [[noreturn]] static void refuse(const std::string& what) {
    throw usage_error("zero::mpi_communicator: " + what);
  }

  static detail::mpi_transport_settings settings(MPI_Comm comm, const mpi_options& options) {
    if (!detail::mpi_is_running()) {
      refuse(
          "MPI is not running; call MPI_Init_thread (or declare a zero::mpi_environment) before "
          "and MPI_Finalize after");
    }
    if (comm == MPI_COMM_NULL) refuse("the communicator is MPI_COMM_NULL");
    int is_inter = 0;
    detail::mpi_try(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
    if (is_inter != 0) refuse("the communicator is an intercommunicator");
    if (options.timeout <= std::chrono::nanoseconds::zero()) {
      refuse("timeout of " + std::to_string(options.timeout.count()) + " ns is not positive");
    }
    check_bytes("segment_bytes", options.segment_bytes);
    check_bytes("message_bytes", options.message_bytes);

    int size = 1;
    detail::mpi_try(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    const auto peers = static_cast<std::uint64_t>(std::max(1, size - 1));
    const std::uint64_t share = options.scratch_bytes / (detail::mpi_channel::flights * peers);
    const std::uint64_t segment = std::min(options.segment_bytes, share);
    if (segment < smallest_segment_bytes) {
      refuse("scratch_bytes of " + std::to_string(options.scratch_bytes) + " leaves " +
             std::to_string(share) + " bytes per segment of " + std::to_string(peers) +
             " peers, fewer than " + std::to_string(smallest_segment_bytes));
    }
    // A deadline has to be representable; nobody waits for ten years.
    const std::chrono::nanoseconds longest = std::chrono::hours(24 * 3650);
    return {.timeout = std::min(options.timeout, longest),
            .segment_bytes = segment / smallest_segment_bytes * smallest_segment_bytes,
            .message_bytes = options.message_bytes,
            .checked_order = options.checked_order,
            .ends_job = options.on_failure == mpi_on_failure::abort_job};
  }

  static void check_bytes(const char* option, std::uint64_t bytes) {
    if (bytes >= smallest_segment_bytes && bytes <= largest_message_bytes) return;
    refuse(std::string(option) + " of " + std::to_string(bytes) + " is not between " +
           std::to_string(smallest_segment_bytes) + " and 2^31 - 1");
  }
};

static_assert(Communicator<mpi_communicator, float> && CanSplit<mpi_communicator>);
static_assert(Communicator<mpi_communicator, bfloat16>);
static_assert(CanReduceScatter<mpi_communicator, bfloat16, float>);
static_assert(CanAllGather<mpi_communicator, std::uint16_t>);

}  // namespace zero
