// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <string>

#include <zero/backends/mpi/call.hpp>
#include <zero/error.hpp>

namespace zero {

/// MPI from its initialisation to its end, for a program whose main does nothing else with it.
///
/// Declare it first in main: communicators must be gone when it is destroyed, which calls
/// MPI_Finalize. A program that calls MPI_Init_thread and MPI_Finalize itself needs none.
class mpi_environment {
 public:
  /// `thread_level` is what the program needs: MPI_THREAD_FUNNELED when one thread makes all calls,
  /// MPI_THREAD_SERIALIZED for one communicator in `overlapped`, MPI_THREAD_MULTIPLE for several,
  /// and wherever another thread shall end the waits of the other ranks by abort().
  /// Throws: usage_error when MPI was initialised before or grants less.
  explicit mpi_environment(int thread_level = MPI_THREAD_MULTIPLE) {
    int initialized = 0;
    detail::mpi_try(MPI_Initialized(&initialized), "MPI_Initialized");
    if (initialized != 0) {
      throw usage_error("zero::mpi_environment: MPI was initialised before; make one environment");
    }
    int granted = MPI_THREAD_SINGLE;
    detail::mpi_try(MPI_Init_thread(nullptr, nullptr, thread_level, &granted), "MPI_Init_thread");
    if (granted < thread_level) {
      MPI_Finalize();
      throw usage_error(std::string("zero::mpi_environment: this MPI grants ") +
                        detail::mpi_thread_level_name(granted) + ", not " +
                        detail::mpi_thread_level_name(thread_level));
    }
  }

  mpi_environment(const mpi_environment&) = delete;
  mpi_environment& operator=(const mpi_environment&) = delete;
  ~mpi_environment() {
    if (detail::mpi_is_running()) MPI_Finalize();
  }
};

}  // namespace zero
