// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// links: zero_rendezvous
// timeout: 60
#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include <zero/rendezvous/open_store.hpp>

#include "unit/rendezvous/loopback.hpp"
#include "unit/rendezvous/process_ranks.hpp"
#include "unit/rendezvous/store_contract.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

using namespace zero;
using namespace zero::test;

namespace {

using strings = std::vector<std::string>;

constexpr open_store_options patient{.timeout = 20s};
constexpr open_store_options hasty{.timeout = 300ms};

launch_environment rank_of(int rank, int size) {
  launch_environment environment;
  environment.rank = rank;
  environment.size = size;
  environment.launcher = "openmpi";
  environment.all_local = false;
  return environment;
}

/// As mpirun tells it to ranks on one host.
launch_environment local_rank_of(int rank, int size, const temporary_folder& folder,
                                 const std::string& job) {
  launch_environment environment = rank_of(rank, size);
  environment.all_local = true;
  environment.job_id = job;
  environment.runtime_directory = folder.path();
  return environment;
}

/// As MASTER_ADDR and MASTER_PORT tell it.
launch_environment master_rank_of(int rank, int size, std::uint16_t port) {
  launch_environment environment = rank_of(rank, size);
  environment.master_address = "127.0.0.1";
  environment.store_port = port;
  return environment;
}

}  // namespace

TEST_CASE("one process opens a memory store, whatever the variables say") {
  launch_environment environment;
  environment.master_address = "192.0.2.1";
  environment.store_port = 1;
  any_store store = open_store(environment);
  CHECK(store.place() == "memory store");
  CHECK(check_one_rank(store, "one") == strings{});
}

TEST_CASE("ranks of one host meet in a directory named after user and job") {
  const temporary_folder folder;
  const std::string name = "zero-" + std::to_string(::geteuid()) + "-1234%401";
  CHECK(local_store_directory(local_rank_of(0, 2, folder, "1234@1")) == folder / name);
  CHECK(failures_of(on_ranks(3, [&](int rank) {
          any_store store = open_store(local_rank_of(rank, 3, folder, "1234@1"), patient);
          struct stat status {};
          if (::stat((folder / name).c_str(), &status) != 0) throw error("no directory");
          if ((status.st_mode & 0777U) != 0700U) throw error("others can read the directory");
          check_between_ranks(store, rank, 3);
        })) == strings{});
  CHECK(folder.files() == strings{});
}

TEST_CASE("fault_44 two jobs of one user on one host do not meet") {
  const temporary_folder folder;
  CHECK(failures_of(on_ranks(6, [&](int thread) {
          const int rank = thread / 2;
          const std::string job = thread % 2 == 0 ? "1" : "2";
          any_store store = open_store(local_rank_of(rank, 3, folder, job), patient);
          store.set("job", job);
          check_between_ranks(store, rank, 3);
          if (store.get("job", far()) != job) throw error("saw the other job");
          store_barrier(store, "end", rank, 3, far());
        })) == strings{});
  CHECK(folder.files() == strings{});
}

TEST_CASE("what a job left that was killed as a whole goes with the next one") {
  const temporary_folder folder;
  {
    std::vector<child_process> children;
    for (int rank = 0; rank < 2; ++rank) {
      children.emplace_back([&, rank] {
        any_store store = open_store(local_rank_of(rank, 2, folder, "killed"), patient);
        store_barrier(store, "all", rank, 2, far());
        ::pause();
      });
    }
    const auto deadline = far();
    while (folder.files().size() < 8 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(2ms);
    }
  }  // kills them
  CHECK(folder.files().size() >= 8);
  CHECK(failures_of(on_ranks(2, [&](int rank) {
          any_store store = open_store(local_rank_of(rank, 2, folder, "next"), patient);
          check_between_ranks(store, rank, 2);
        })) == strings{});
  CHECK(folder.files() == strings{});
}

TEST_CASE("a runtime directory that is not there is replaced by /tmp") {
  const temporary_folder folder;
  launch_environment environment = local_rank_of(0, 2, folder, "job");
  const std::string name = "zero-" + std::to_string(::geteuid()) + "-job";
  for (const std::string& runtime : {folder / "absent", std::string()}) {
    environment.runtime_directory = runtime;
    CHECK(local_store_directory(environment) == "/tmp/" + name);
  }
}

TEST_CASE("a directory of another user in the job's place is refused") {
  if (::geteuid() != 0) {
    WARN("only root can give a directory away: not tested");
    return;
  }
  const temporary_folder folder;
  const auto environment = local_rank_of(0, 2, folder, "job");
  const std::string path = local_store_directory(environment);
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
  const auto result = result_of([&] { open_store(environment, hasty); });
  CHECK(result.kind == store_outcome::rendezvous);
  CHECK(result.says("belongs to user 65534"));
}

TEST_CASE("ranks meet at MASTER_ADDR and MASTER_PORT, several times") {
  const std::uint16_t port = loopback_socket().listen();
  for (int time = 0; time < 3; ++time) {
    CHECK(failures_of(on_ranks(3, [&](int rank) {
            any_store store = open_store(master_rank_of(rank, 3, port), patient);
            check_between_ranks(store, rank, 3);
          })) == strings{});
    CHECK(port_is_free(port));
  }
}

TEST_CASE("a program opens stores one after the other, the first at a socket handed over") {
  loopback_socket listening;
  const std::uint16_t port = listening.listen();
  const int descriptor = listening.release();
  CHECK(failures_of(on_ranks(2, [&](int rank) {
          auto environment = master_rank_of(rank, 2, port);
          if (rank == 0) environment.store_descriptor = descriptor;
          for (int time = 0; time < 3; ++time) {
            any_store store = open_store(environment, patient);
            check_between_ranks(store, rank, 2);
          }
        })) == strings{});
  CHECK(port_is_free(port));
}

TEST_CASE("an agent that owns MASTER_PORT is left alone") {
  // Its protocol is another one: it would drop what a rank says.
  loopback_socket agent;
  const std::uint16_t agents_port = agent.listen();
  loopback_socket above;
  if (agents_port == 65535 || !above.bind_to(static_cast<std::uint16_t>(agents_port + 1))) {
    WARN("the port above the agent's is taken: not tested");
    return;
  }
  above = loopback_socket();
  const std::string port_text = std::to_string(agents_port);
  CHECK(failures_of(on_ranks(2, [&](int rank) {
          const std::string rank_text = std::to_string(rank);
          const auto environment = from_environment([&](const char* name) -> const char* {
            const std::string_view wanted = name;
            if (wanted == "RANK") return rank_text.c_str();
            if (wanted == "WORLD_SIZE") return "2";
            if (wanted == "MASTER_ADDR") return "127.0.0.1";
            if (wanted == "MASTER_PORT") return port_text.c_str();
            if (wanted == "TORCHELASTIC_USE_AGENT_STORE") return "True";
            return nullptr;
          });
          any_store store = open_store(environment, patient);
          check_between_ranks(store, rank, 2);
        })) == strings{});
}

TEST_CASE("without a place to meet the error names MASTER_ADDR and shows how to set it") {
  const auto apart = result_of([&] { open_store(rank_of(1, 4), hasty); });
  CHECK(apart.kind == store_outcome::rendezvous);
  CHECK(apart.says("the 4 ranks (launcher: openmpi) may be on several hosts"));
  CHECK(apart.says("set MASTER_ADDR to its host and MASTER_PORT to a free port there"));
  CHECK(apart.says("mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=29500"));
  launch_environment no_job = rank_of(1, 4);
  no_job.all_local = true;
  const auto local = result_of([&] { open_store(no_job, hasty); });
  CHECK(local.kind == store_outcome::rendezvous);
  CHECK(local.says("gives no job id"));
  CHECK(local.says("set ZERO_JOB_ID"));
}

TEST_CASE("R12 a rank that never comes is a timeout wherever the ranks meet") {
  const temporary_folder folder;
  const std::uint16_t port = loopback_socket().listen();
  for (const bool over_tcp : {false, true}) {
    CAPTURE(over_tcp);
    const auto results = on_ranks(2, [&](int rank) {
      open_store(over_tcp ? master_rank_of(rank, 3, port) : local_rank_of(rank, 3, folder, "job"),
                 hasty);
    });
    for (const auto& result : results) {
      CAPTURE(result.text);
      CHECK(result.kind == store_outcome::timeout);
    }
    CHECK(folder.files() == strings{});
    CHECK(port_is_free(port));
  }
}
