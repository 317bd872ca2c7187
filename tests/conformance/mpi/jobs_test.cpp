// SPDX-License-Identifier: Apache-2.0
// labels: fault
// timeout: 180
// links: zero::mpi
#include <catch2/catch.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <zero/backends/mpi.hpp>
#include <zero/backends/overlapped.hpp>

#include "support/allocation_counter.hpp"
#include "support/mpi_ranks.hpp"
#include "support/rank_runner.hpp"

using namespace zero;
using namespace zero::test;
using namespace std::chrono_literals;

namespace {

std::string current_test() {
  return '"' + Catch::getResultCapture().getCurrentTestName() + '"';
}

void sum_once(mpi_communicator& comm) {
  double value = 1;
  comm.all_reduce(range<double, full>(&value, 1));
}

void gather_floats(mpi_communicator& comm, std::vector<float>& values) {
  const auto elements = values.size() / static_cast<std::size_t>(comm.size());
  const auto own = static_cast<std::size_t>(comm.rank()) * elements;
  comm.all_gather(range<const float, shard>(values.data() + own, elements),
                  range<float, full>(values.data(), values.size()));
}

/// The number after `mark` in a job's output, -1 when it is not there.
std::int64_t number_after(const std::string& output, const std::string& mark) {
  const auto at = output.find(mark);
  return at == std::string::npos ? -1 : std::stoll(output.substr(at + mark.size()));
}

void announce_now(const std::string& mark) {
  std::cout << mark << std::chrono::steady_clock::now().time_since_epoch().count() << std::endl;
}

/// The job failed, and did so within 5 s of the time that a rank wrote behind `mark`.
void check_ended_soon_after(const mpi_job& job, const std::string& mark) {
  INFO(job.output);
  CHECK_FALSE(job.is_overdue);
  CHECK(job.exit_code != 0);
  const std::chrono::steady_clock::time_point when{
      std::chrono::steady_clock::duration(number_after(job.output, mark))};
  REQUIRE(when.time_since_epoch().count() > 0);
  CHECK(job.ended - when < 5s);
}

}  // namespace

TEST_CASE("R1 a killed rank ends the whole job of MPI") {
  if (!is_launched_rank()) {
    return check_ended_soon_after(launch_mpi(3, {current_test()}, 60s), "killed at ");
  }
  start_mpi();
  mpi_communicator comm(MPI_COMM_WORLD);
  std::vector<float> values(3U << 20U);
  for (int call = 0; call < 1'000'000; ++call) {
    if (call == 20 && comm.rank() == 1) {
      announce_now("killed at ");
      ::kill(::getpid(), SIGKILL);
    }
    gather_floats(comm, values);
  }
}

TEST_CASE("a rank that exits without MPI_Finalize ends the whole job") {
  if (!is_launched_rank()) {
    return check_ended_soon_after(launch_mpi(2, {current_test()}, 60s), "exited at ");
  }
  start_mpi();
  mpi_communicator comm(MPI_COMM_WORLD);
  sum_once(comm);
  if (comm.rank() == 1) {
    announce_now("exited at ");
    ::_exit(0);
  }
  sum_once(comm);
}

TEST_CASE("R12 data that were on their way end the job of MPI after the program has its error") {
  if (!is_launched_rank()) {
    const mpi_job job = launch_mpi(2, {current_test()}, 60s);
    INFO(job.output);
    CHECK_FALSE(job.is_overdue);
    CHECK(job.exit_code != 0);
    CHECK(job.output.find("rank 0 has its error: mpi rank 0, all_gather #0, peer 1") !=
          std::string::npos);
    CHECK(job.output.find("for rank(s) 1") != std::string::npos);
    return;
  }
  start_mpi();
  static std::vector<float> values(8U << 20U);  // as long as MPI runs: see mpi_communicator
  mpi_options options;
  options.timeout = 300ms;
  options.checked_order = false;  // so that data are sent to a rank that is not there
  mpi_communicator comm(MPI_COMM_WORLD, options);
  if (comm.rank() == 1) {
    std::this_thread::sleep_for(2s);
    CHECK(error_of([&] { gather_floats(comm, values); }).kind == outcome::aborted);
  } else {
    const rank_error error = error_of([&] { gather_floats(comm, values); });
    std::cout << "rank 0 has its error: " << error.text << std::endl;
    CHECK(error.kind == outcome::timeout);
    meet_in_mpi();
    return;
  }
  meet_in_mpi();
}

TEST_CASE("MPI that was not initialised is a usage_error that says what to call") {
  if (is_launched_rank()) return;
  const rank_error error = error_of([] { mpi_communicator comm(MPI_COMM_WORLD); });
  CHECK(error.kind == outcome::usage);
  CHECK(error.says("MPI_Init_thread"));
}

TEST_CASE("options of MPI that cannot be used are usage_errors with their values") {
  if (ran_as_ranks(2)) return;
  start_mpi();
  const auto refusal = [](const mpi_options& options) {
    return error_of([&] { mpi_communicator comm(MPI_COMM_WORLD, options); });
  };
  const auto refuses = [&](const mpi_options& options, const std::string& part) {
    const rank_error error = refusal(options);
    INFO(error.text);
    CHECK(error.kind == outcome::usage);
    CHECK(error.says(part));
  };
  mpi_options options;
  options.timeout = 0s;
  refuses(options, "timeout of 0 ns");
  options = {};
  options.segment_bytes = 63;
  refuses(options, "segment_bytes of 63");
  options = {};
  options.message_bytes = std::uint64_t{1} << 31U;
  refuses(options, "message_bytes of 2147483648");
  options = {};
  options.scratch_bytes = 100;
  refuses(options, "scratch_bytes of 100");
  CHECK(error_of([] { mpi_communicator comm(MPI_COMM_NULL); }).says("MPI_COMM_NULL"));
  CHECK(error_of([] { mpi_environment second; }).says("initialised before"));

  options = {};
  options.segment_bytes = mpi_world().rank == 0 ? 640 : 1280;
  const rank_error error = refusal(options);
  INFO(error.text);
  CHECK(error.kind == outcome::mismatch);
  CHECK(error.says("rank 0 has segments of 640 bytes"));
  CHECK(error.says("rank 1 has segments of 1280 bytes"));
}

TEST_CASE("a thread that MPI was not told of is refused") {
  if (!is_launched_rank()) {
    const mpi_job job =
        launch_mpi(2, {current_test()}, 60s,
                   {"ZERO_TEST_MPI_THREAD_LEVEL=" + std::to_string(MPI_THREAD_FUNNELED)});
    INFO(job.output);
    CHECK(job.exit_code == 0);
    return;
  }
  start_mpi();
  int level = MPI_THREAD_MULTIPLE;
  MPI_Query_thread(&level);
  mpi_communicator comm(MPI_COMM_WORLD);
  rank_error error;
  std::thread other([&] { error = error_of([&] { sum_once(comm); }); });
  other.join();
  INFO(error.text);
  if (level < MPI_THREAD_SERIALIZED) {
    CHECK(error.kind == outcome::usage);
    CHECK(error.says("MPI_THREAD_SERIALIZED"));
  } else {
    CHECK(error.kind == outcome::returned);
  }
  meet_in_mpi();
}

TEST_CASE("a rank whose operations ran on another thread leaves in peace") {
  if (!is_launched_rank()) {
    // Without the ranks' last words MPI_Finalize would wait for them until the timeout.
    const mpi_job job =
        launch_mpi(2, {current_test()}, 60s,
                   {"ZERO_TEST_MPI_THREAD_LEVEL=" + std::to_string(MPI_THREAD_SERIALIZED)});
    INFO(job.output);
    CHECK_FALSE(job.is_overdue);
    CHECK(job.exit_code == 0);
    return;
  }
  start_mpi();
  mpi_communicator inner(MPI_COMM_WORLD);
  overlapped comm(inner);
  float value = 1;
  comm.broadcast(range<float, full>(&value, 1), 0).wait({});
  SUCCEED("the broadcast was made");
}

TEST_CASE("communicators of MPI come and go and never hear of each other") {
  if (ran_as_ranks(3)) return;
  const auto world = mpi_world();
  const int worlds = full_counts() ? 3000 : 200;
  for (int i = 0; i < worlds; ++i) {
    auto first = std::make_unique<mpi_communicator>(MPI_COMM_WORLD);
    mpi_communicator second(MPI_COMM_WORLD);
    sum_once(*first);
    // Ranks leave at different times, and the others go on with what they have.
    if (i % 3 == world.rank) std::this_thread::sleep_for(100us);
    first.reset();
    sum_once(second);
    auto part = second.split(world.rank % 2);
    sum_once(part);
    sum_once(second);
  }
  SUCCEED("every sum was made");
}

TEST_CASE("an operation of MPI allocates nothing of its own") {
  if (ran_as_ranks(2)) return;
  start_mpi();
  mpi_communicator comm(MPI_COMM_WORLD);
  std::vector<float> values(2000, 1.0F);
  std::array<double, 700> doubles{};
  const auto round = [&] {
    const auto own = static_cast<std::size_t>(comm.rank()) * 1000;
    comm.reduce_scatter(range<const float, partial>(values.data(), values.size()),
                        range<float, shard>(values.data() + own, 1000));
    gather_floats(comm, values);
    comm.all_reduce(range<double, full>(doubles.data(), doubles.size()));
  };
  // MPI allocates too, when messages come in an order that it has not seen: but not every time.
  std::uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 200; ++i) {
    const auto before = allocations_of_this_thread();
    round();
    fewest = std::min(fewest, allocations_of_this_thread() - before);
  }
  CHECK(fewest == 0);
}

TEST_CASE("a broadcast and a gather of MPI may have more bytes than an int counts") {
  if (!full_counts()) return;
  constexpr std::uint64_t count = (std::uint64_t{1} << 28U) + 1003;  // of 8 bytes, on each rank
  const auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
  if (memory < 2 * 2 * count * sizeof(std::uint64_t) + (std::uint64_t{4} << 30U)) {
    WARN("left out: two ranks with 4.3 GB each do not fit into " << memory << " bytes");
    return;
  }
  if (ran_as_ranks(2)) return;
  start_mpi();
  mpi_options options;
  options.message_bytes = (std::uint64_t{1} << 31U) - 1;
  mpi_communicator comm(MPI_COMM_WORLD, options);
  std::vector<std::uint64_t> values(2 * count);
  const auto value_at = [](std::uint64_t i) { return i * 0x9E3779B97F4A7C15U; };
  const auto differences = [&](std::uint64_t first, std::uint64_t elements) {
    std::uint64_t wrong = 0;
    for (std::uint64_t i = first; i < first + elements; ++i) {
      wrong += values[i] != value_at(i) ? 1U : 0U;
    }
    return wrong;
  };
  const auto own = static_cast<std::uint64_t>(comm.rank()) * count;
  for (std::uint64_t i = own; i < own + count; ++i) values[i] = value_at(i);

  comm.broadcast(range<std::uint64_t, full>(values.data() + count, count), 1);
  CHECK(differences(count, count) == 0);
  comm.all_gather(range<const std::uint64_t, shard>(values.data() + own, count),
                  range<std::uint64_t, full>(values.data(), 2 * count));
  CHECK(differences(0, 2 * count) == 0);
}
