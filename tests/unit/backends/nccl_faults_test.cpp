// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault simulated_device
// timeout: 120
// links: zero_simulated_device
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <zero/backends/nccl.hpp>
#include <zero/cuda/stream.hpp>
#include <zero/range.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "support/rank_runner.hpp"
#include "support/simulated_device/nccl_ranks.hpp"
#include "support/simulated_device/simulated_device.hpp"

using namespace zero;
using namespace zero::test;

TEST_CASE(
    "a failed call on one rank is a typed error there, and an abort with its text elsewhere") {
  for (const std::string function :
       {"ncclAllReduce", "ncclCommGetAsyncError", "cudaStreamWaitEvent", "cudaEventRecord",
        "cudaStreamIsCapturing", "cudaStreamQuery"}) {
    for (const std::uint64_t call : {0U, 1U, 4U}) {
      const bool is_nccl = function.rfind("nccl", 0) == 0;
      simulated_device device(machine_of(call, 3));
      device.fail({.function = function,
                   .call = call,
                   .code = is_nccl ? int{ncclUnhandledCudaError} : int{cudaErrorIllegalAddress},
                   .host_thread = 1});
      const auto errors =
          run_ranks(3, quick(), [](nccl_communicator& comm) { all_reduce_often(comm, 40); });
      INFO(function << " call " << call << ": " << errors[1].text);
      // What is only seen by asking, the watcher may see first.
      const bool is_asked_for = function == "ncclCommGetAsyncError";
      CHECK((errors[1].kind == outcome::communicator ||
             (is_asked_for && errors[1].kind == outcome::aborted)));
      CHECK(errors[1].where.backend == "nccl");
      CHECK(errors[1].where.rank == 1);
      CHECK(errors[1].says(is_nccl ? "nccl" : "cudaErrorIllegalAddress (700)"));
      if (function == "ncclAllReduce") {
        CHECK(errors[1].where.operation == "all_reduce");
        CHECK(errors[1].where.sequence == call);
        CHECK(errors[1].says("ncclAllReduce: unhandled cuda error (1), injected fault"));
      }
      for (const std::size_t peer : {0U, 2U}) {
        INFO("rank " << peer << ": " << errors[peer].text);
        CHECK(errors[peer].kind == outcome::aborted);
        CHECK(errors[peer].where.peer == 1);
      }
      CHECK(device.findings() == std::vector<std::string>{});
    }
  }
}

TEST_CASE("even a call that NCCL refuses poisons: the peers have made theirs") {
  simulated_device device(machine_of(0, 2));
  device.fail({.function = "ncclAllReduce", .code = ncclInvalidArgument, .host_thread = 0});
  std::vector<rank_error> later(2);
  const auto errors = run_ranks(2, quick(), [&](nccl_communicator& comm) {
    const rank_error first = error_of([&] { all_reduce_often(comm, 1); });
    later[static_cast<std::size_t>(comm.rank())] = error_of([&] { all_reduce_often(comm, 1); });
    if (comm.rank() == 0 && !first.says("ncclAllReduce: invalid argument (4)")) {
      throw std::runtime_error("not said: " + first.text);
    }
  });
  CHECK(errors[0].text == "");
  for (const rank_error& error : later) {
    INFO(error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.where.operation == "all_reduce");
    CHECK(error.where.sequence == 0);  // what failed, not what was refused because of it
  }
  CHECK(device.findings() == std::vector<std::string>{});
}

TEST_CASE("a failure is named after the oldest collective that the device had not finished") {
  simulated_device device(machine_of(5, 2));
  device.never_arrives(1, 1);
  nccl_options options = quick();
  options.timeout = std::chrono::milliseconds(300);
  const auto errors = run_ranks(2, options, [](nccl_communicator& comm) {
    const unique_cuda_stream stream;
    const auto values = device_ones(6);
    comm.all_reduce(values, stream).wait(stream);
    comm.reduce_scatter(range<const double, partial, cuda_space>(values.data(), 4),
                        range<double, shard, cuda_space>(values.data() + 4, 2), {}, stream)
        .wait(stream);
    comm.broadcast(values, 0, stream).wait(stream);
    comm.synchronize(stream);
  });
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK((error.kind == outcome::timeout || error.kind == outcome::aborted));
    CHECK(error.where.operation == "reduce_scatter");
    CHECK(error.where.sequence == 1);
  }
  CHECK(device.findings() == std::vector<std::string>{});
}

TEST_CASE("what was done before a failure stays good, and what comes after is refused") {
  simulated_device device(machine_of(0, 2));
  const auto errors = run_ranks(2, quick(), [](nccl_communicator& comm) {
    const unique_cuda_stream stream;
    const auto values = device_ones(3);
    auto work = comm.all_reduce(values, stream);
    work.wait(stream);
    comm.synchronize(stream);
    comm.abort("enough");
    work.wait(stream);
    comm.synchronize(stream);
    if (values.data()[2] != 2.0) throw std::runtime_error("the result is wrong");
    comm.all_reduce(values, stream);
  });
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.says("enough"));
    CHECK(error.where.operation == "all_reduce");
    CHECK(error.where.sequence == 1);
  }
  CHECK(device.findings() == std::vector<std::string>{});
}

TEST_CASE("what a failing rank has finished gets finished elsewhere before the failure counts") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    simulated_device device(machine_of(seed, 2));
    std::atomic<bool> has_given_up{false};
    const auto errors = run_ranks(2, quick(), [&](nccl_communicator& comm) {
      const unique_cuda_stream stream;
      const auto values = device_ones(3);
      auto work = comm.all_reduce(values, stream);
      if (comm.rank() == 1) {
        work.wait(stream);
        comm.synchronize(stream);
        comm.abort("out of data");
        has_given_up = true;
      }
      while (!has_given_up) std::this_thread::yield();
      work.wait(stream);
      comm.synchronize(stream);
      for (;;) comm.all_reduce(values, stream).wait(stream);
    });
    for (const rank_error& error : errors) {
      INFO("seed " << seed << ": " << error.text);
      CHECK(error.kind == outcome::aborted);
      CHECK(error.says("out of data"));
      CHECK(error.where.sequence >= 1);
    }
    CHECK(device.findings() == std::vector<std::string>{});
  }
}

TEST_CASE("a peer's own words come before those of NCCL about the lost connection") {
  simulated_device device(machine_of(0, 2));
  device.fail({.function = "ncclAllReduce", .code = ncclRemoteError, .host_thread = 0});
  std::atomic<bool> has_given_up{false};
  const auto errors = run_ranks(2, unwatched(), [&](nccl_communicator& comm) {
    if (comm.rank() == 1) {
      comm.abort("the loss is not a number");
      const rank_error own = error_of([&] { all_reduce_often(comm, 1); });  // published by now
      has_given_up = true;
      if (own.kind != outcome::aborted) throw std::runtime_error(own.text);
      return;
    }
    while (!has_given_up) std::this_thread::yield();
    all_reduce_often(comm, 1);
  });
  CHECK(errors[0].kind == outcome::aborted);
  CHECK(errors[0].says("the loss is not a number"));
  CHECK(errors[0].where.peer == 1);
  CHECK(errors[1].text == "");
}

TEST_CASE("what is in the stream comes to its end when its communicator is destroyed") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    simulated_device device(machine_of(seed, 2));
    std::vector<range<double, full, cuda_space>> values(2, {nullptr, 0});
    std::vector<std::optional<unique_cuda_stream>> streams(2);
    const auto errors = run_ranks(2, quick(), [&](nccl_communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      values[rank] = device_ones(3);
      comm.all_reduce(values[rank], streams[rank].emplace()).wait(*streams[rank]);
    });
    for (const rank_error& error : errors) CHECK(error.text == "");
    for (const auto& range : values) CHECK(range.data()[2] == 2.0);
    CHECK(device.findings() == std::vector<std::string>{});
  }
}

TEST_CASE("an asynchronous error ends the wait on every rank") {
  simulated_device device(machine_of(3, 3));
  device.asynchronous_error(2, 1, ncclRemoteError);
  const auto errors =
      run_ranks(3, quick(), [](nccl_communicator& comm) { all_reduce_often(comm, 20); });
  for (int rank = 0; rank < 3; ++rank) {
    const rank_error& error = errors[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": " << error.text);
    CHECK((error.kind == outcome::aborted || error.kind == outcome::communicator));
    CHECK(error.says("remote process exited or there was a network error (6)"));
    CHECK(error.says("injected asynchronous error"));
  }
  CHECK(device.findings() == std::vector<std::string>{});
}

TEST_CASE("a rank that never arrives ends in a timeout on the others, and streams go on") {
  simulated_device device(machine_of(3, 2));
  device.never_arrives(1, 2);
  nccl_options options = quick();
  options.timeout = std::chrono::milliseconds(300);
  const auto errors =
      run_ranks(2, options, [](nccl_communicator& comm) { all_reduce_often(comm, 4); });
  for (const rank_error& error : errors) {
    INFO(error.text);
    // Both watch; one of them is first, and the other may learn of it before its own deadline.
    CHECK((error.kind == outcome::timeout || error.kind == outcome::aborted));
    CHECK(error.says("deadline"));  // of the collective, or of the host's wait for it
    CHECK(error.where.backend == "nccl");
  }
  CHECK(std::count_if(errors.begin(), errors.end(),
                      [](const rank_error& e) { return e.kind == outcome::timeout; }) >= 1);
}

TEST_CASE("ranks that compare their calls agree whom they waited for in vain") {
  simulated_device device(machine_of(0, 3));
  nccl_options options = quick();
  options.checked_order = true;
  options.timeout = std::chrono::seconds(1);
  std::atomic<bool> is_waiting{false};
  std::atomic<bool> is_over{false};
  const auto errors = run_ranks(3, options, [&](nccl_communicator& comm) {
    if (comm.rank() == 0) is_waiting = true;
    // The deadline of rank 0 comes first, and rank 2 hears of it before its own.
    while (comm.rank() == 2 && !is_waiting) std::this_thread::yield();
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    while (comm.rank() == 1 && !is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const rank_error error = error_of([&] { all_reduce_often(comm, 1); });
    if (comm.rank() == 0) is_over = true;
    if (error.kind == outcome::returned) throw std::runtime_error("it returned");
    all_reduce_often(comm, 1);  // says the same again
  });
  for (const std::size_t rank : {0U, 1U, 2U}) {
    INFO("rank " << rank << ": " << errors[rank].text);
    CHECK(errors[rank].kind == (rank == 1 ? outcome::aborted : outcome::timeout));
    CHECK(errors[rank].says("waited in vain for rank(s) 1"));
    CHECK(errors[rank].where.peer == 1);
  }
}

TEST_CASE("a dropped handle waits no longer than its deadline, and poisons") {
  simulated_device device(machine_of(3, 2));
  device.never_arrives(1, 0);
  nccl_options options = quick();
  options.timeout = std::chrono::milliseconds(200);
  options.watch_interval = std::chrono::hours(1);
  const auto errors = run_ranks(2, options, [](nccl_communicator& comm) {
    const unique_cuda_stream stream;
    const auto values = device_ones(1);
    { const auto dropped = comm.all_reduce(values, stream); }
    comm.all_reduce(values, stream).wait(stream);
  });
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::timeout);
    CHECK(error.where.sequence == 0);
  }
}

TEST_CASE("ranks that do not come are named, and a failed one ends the set-up of the others") {
  nccl_options options = quick();
  options.setup_timeout = std::chrono::milliseconds(300);
  {
    simulated_device device(machine_of(0, 3));
    memory_store store;
    const rank_error error = error_of([&] { nccl_communicator(store, 1, 3, options); });
    CHECK(error.kind == outcome::timeout);
    CHECK(error.says("rank(s) 0, 2 did not come (met in memory store)"));
    CHECK(error.where.peer == 0);
  }
  {
    simulated_device device(machine_of(0, 3));
    memory_store store;
    const rank_error error = error_of([&] { nccl_communicator(store, 0, 2, options); });
    CHECK(error.kind == outcome::timeout);
    CHECK(error.says("rank(s) 1 did not come"));
  }
  for (const std::string function :
       {"cudaGetDeviceCount", "ncclGetUniqueId", "ncclCommInitRankConfig"}) {
    const bool is_nccl = function.rfind("nccl", 0) == 0;
    simulated_device device(machine_of(0, 3));
    device.fail({.function = function,
                 .code = is_nccl ? int{ncclSystemError} : int{cudaErrorNoDevice},
                 .host_thread = 0});
    const auto errors = run_ranks(3, quick(), [](nccl_communicator&) {});
    CHECK(errors[0].kind == (is_nccl ? outcome::communicator : outcome::error));
    CHECK(errors[0].says(function +
                         (is_nccl ? ": unhandled system error (2)" : ": cudaErrorNoDevice (100)")));
    for (const std::size_t peer : {1U, 2U}) {
      INFO(errors[peer].text);
      CHECK(errors[peer].kind == outcome::aborted);
      CHECK(errors[peer].says(function));
    }
  }
}

TEST_CASE("an abort reaches a part that was split off, in one group") {
  simulated_device device(machine_of(2, 4));
  const auto errors = run_ranks(4, quick(), [](nccl_communicator& comm) {
    nccl_communicator part = comm.split(comm.rank() % 2);
    if (part.size() != 2 || part.rank() != comm.rank() / 2) throw std::runtime_error("wrong part");
    if (comm.rank() == 3) {
      comm.abort("the whole is over");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return;
    }
    all_reduce_often(part, 1000000);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const rank_error& error = errors[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": " << error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.says("the whole is over"));
  }
  CHECK(device.findings() == std::vector<std::string>{});
  CHECK(errors[3].text == "");
}

TEST_CASE("a wait through the whole throws what one of its parts has lost") {
  simulated_device device(machine_of(2, 2));
  device.never_arrives(1, 0);  // in the part: nothing is called on the whole
  std::atomic<bool> is_peer_there{false};
  const auto errors = run_ranks(2, quick(), [&](nccl_communicator& comm) {
    const unique_cuda_stream stream;
    nccl_communicator part = comm.split(0);
    part.all_reduce(device_ones(1), stream).wait(stream);
    if (comm.rank() == 0) is_peer_there = true;
    if (comm.rank() == 1) {
      while (!is_peer_there) std::this_thread::yield();
      comm.abort("the whole is over");
    }
    comm.synchronize(stream);
  });
  for (const rank_error& error : errors) {
    INFO(error.text);
    CHECK(error.kind == outcome::aborted);
    CHECK(error.says("the whole is over"));
    CHECK(error.where.operation == "all_reduce");
    CHECK(error.where.peer == 1);
  }
  CHECK(device.findings() == std::vector<std::string>{});
}
