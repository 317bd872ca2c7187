// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <zero/backends/mpi.hpp>

#include "support/mpi_launcher.hpp"
#include "support/process_runner.hpp"

// What a test of the MPI backend does as a rank (support/mpi_launcher.hpp says how it becomes one).

namespace zero::test {

/// Runs the current test case, whose name has no comma, as `ranks` ranks. Returns false in the
/// ranks, which then run it.
inline bool ran_as_ranks(int ranks, std::chrono::seconds limit = std::chrono::seconds(100)) {
  if (is_launched_rank()) return false;
  const std::string name = Catch::getResultCapture().getCurrentTestName();
  const mpi_job job = launch_mpi(ranks, {'"' + name + '"'}, limit);
  INFO(job.output);
  CHECK_FALSE(job.is_overdue);
  CHECK(job.exit_code == 0);
  return true;
}

/// MPI in this rank, from the first use to the end of the process.
inline void start_mpi() {
  static const mpi_environment environment([] {
    const char* level = std::getenv("ZERO_TEST_MPI_THREAD_LEVEL");
    return level != nullptr ? std::atoi(level) : MPI_THREAD_MULTIPLE;
  }());
}

struct world_of_ranks {
  int rank;
  int size;
};
inline world_of_ranks mpi_world() {
  start_mpi();
  world_of_ranks world{};
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  return world;
}

/// Meets the other ranks without taking their cores while it waits.
inline void meet_in_mpi() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The bytes of all ranks of the world, on all of them.
inline std::vector<std::string> gather_in_mpi(const std::string& own) {
  const auto world = mpi_world();
  meet_in_mpi();
  const int length = static_cast<int>(own.size());
  std::vector<int> lengths(static_cast<std::size_t>(world.size));
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> places;
  int total = 0;
  for (const int each : lengths) {
    places.push_back(total);
    total += each;
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  MPI_Allgatherv(own.data(), length, MPI_BYTE, all.data(), lengths.data(), places.data(), MPI_BYTE,
                 MPI_COMM_WORLD);
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    result.push_back(all.substr(static_cast<std::size_t>(places[rank]),
                                static_cast<std::size_t>(lengths[rank])));
  }
  return result;
}

/// The options of a fixture of the conformance tests, as the backend takes them.
struct usual_mpi {
  static mpi_options options() { return {}; }
};

/// The first ranks of the job call the function, the others wait; what all of them returned or
/// threw is known to every one.
template <class Settings = usual_mpi>
struct mpi_backend {
  static std::string name() { return "mpi"; }
  static std::vector<int> sizes() {
    std::vector<int> all;
    for (int size = 1; size <= mpi_world().size; ++size) all.push_back(size);
    return all;
  }

  template <class Function>
  static auto run(int size, threads_options options, Function function) {
    using result = std::invoke_result_t<Function&, mpi_communicator&>;
    const auto world = mpi_world();
    const bool takes_part = world.rank < size;
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, takes_part ? 0 : MPI_UNDEFINED, world.rank, &part);
    process_report own;
    std::string bytes;
    if (takes_part) {
      bytes = run_here<result>(part, options, function, own);
      MPI_Comm_free(&part);
    }
    return process_result<result>(exchange(size, own, bytes));
  }

 private:
  struct ending {
    bool has_value;
    process_clock::time_point ended;
  };

  /// As run_threads does: peers learn why before the destructor tells them that this rank left.
  template <class R, class Function>
  static std::string run_here(MPI_Comm part, threads_options options, Function& function,
                              process_report& own) {
    mpi_options settings = Settings::options();
    settings.timeout = options.timeout;
    mpi_communicator communicator(part, settings);
    try {
      std::string value;
      if constexpr (std::is_void_v<R>) {
        function(communicator);
      } else {
        value = wire_form<R>::encode(function(communicator));
      }
      own.has_value = true;
      own.ended = process_clock::now();
      return value;
    } catch (...) {
      own.ended = process_clock::now();
      encoded_error error = encode_current_exception();
      communicator.abort(error.reason);
      return std::move(error.bytes);
    }
  }

  static std::vector<process_report> exchange(int size, const process_report& own,
                                              const std::string& bytes) {
    const ending end{own.has_value, own.ended};
    std::string message(sizeof(end), '\0');
    std::memcpy(message.data(), &end, sizeof(end));
    const auto messages = gather_in_mpi(message + bytes);
    std::vector<process_report> reports;
    for (int rank = 0; rank < size; ++rank) {
      const std::string& from = messages[static_cast<std::size_t>(rank)];
      ending theirs{};
      std::memcpy(&theirs, from.data(), sizeof(theirs));
      process_report report;
      report.has_value = theirs.has_value;
      report.ended = theirs.ended;
      const std::string rest = from.substr(sizeof(theirs));
      if (theirs.has_value) {
        report.value = rest;
      } else {
        report.error = decode_error(rest);
      }
      reports.push_back(std::move(report));
    }
    return reports;
  }
};

}  // namespace zero::test
