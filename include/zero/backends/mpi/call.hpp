// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <string>

#include <zero/error.hpp>

namespace zero::detail {

/// MPI's own words for an error code.
inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
    return "error code " + std::to_string(code);
  }
  return {text, static_cast<std::size_t>(length)};
}

/// Every call of MPI goes through here, with the name of the function for the message.
/// Throws: communicator_error unless the code says success.
inline void mpi_try(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  communicator_failure where;
  where.backend = "mpi";
  throw communicator_error(std::string(function) + " failed: " + mpi_error_text(code), where);
}

/// Whether MPI can be called: initialised and not yet finalised.
inline bool mpi_is_running() noexcept {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return false;
  MPI_Finalized(&finalized);
  return finalized == 0;
}

inline const char* mpi_thread_level_name(int level) noexcept {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  if (level == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
  return "MPI_THREAD_MULTIPLE";
}

}  // namespace zero::detail
