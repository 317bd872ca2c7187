// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <zero/rendezvous/environment.hpp>

#include "unit/rendezvous/store_contract.hpp"

using namespace zero;
using namespace zero::test;

namespace {

using variables = std::map<std::string, std::string>;

launch_environment read(const variables& given) {
  return from_environment([&](const char* name) -> const char* {
    const auto found = given.find(name);
    return found == given.end() ? nullptr : found->second.c_str();
  });
}

/// The texts that launchers set, for rank 2 of 4, two ranks per host.
const variables by_zero{{"ZERO_RANK", "2"},
                        {"ZERO_WORLD_SIZE", "4"},
                        {"ZERO_LOCAL_RANK", "0"},
                        {"ZERO_LOCAL_WORLD_SIZE", "2"},
                        {"ZERO_JOB_ID", "mine"}};
const variables by_torchrun{{"RANK", "2"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "0"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"GROUP_RANK", "1"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "run"},
                            {"TORCHELASTIC_RESTART_COUNT", "3"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const variables by_openmpi{{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_MCA_ess_base_jobid", "1234"}, {"PMIX_RANK", "2"},
                           {"PMIX_NAMESPACE", "5678"}};
const variables by_pmi{
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const variables by_slurm{{"SLURM_PROCID", "2"},  {"SLURM_NTASKS", "4"},  {"SLURM_LOCALID", "0"},
                         {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "1"}, {"SLURM_NNODES", "2"}};

/// `first` with everything of `second` that it lacks.
variables both(variables first, const variables& second) {
  first.insert(second.begin(), second.end());
  return first;
}

variables changed(variables base, const std::string& name, const std::string& value) {
  base[name] = value;
  return base;
}

variables without(variables base, const std::string& name) {
  base.erase(name);
  return base;
}

}  // namespace

TEST_CASE("each launcher's variables are understood") {
  const std::vector<std::pair<std::string, variables>> launchers{{"zero", by_zero},
                                                                 {"torchrun", by_torchrun},
                                                                 {"openmpi", by_openmpi},
                                                                 {"pmi", by_pmi},
                                                                 {"slurm", by_slurm}};
  for (const auto& [name, given] : launchers) {
    CAPTURE(name);
    const launch_environment environment = read(given);
    CHECK(environment.launcher == name);
    CHECK(environment.rank == 2);
    CHECK(environment.size == 4);
    CHECK(environment.local_rank == 0);
    CHECK_FALSE(environment.all_local);
    if (name == "slurm")
      CHECK_FALSE(environment.local_size);
    else
      CHECK(environment.local_size == 2);
  }
}

TEST_CASE("nothing means one process") {
  const launch_environment environment =
      read({{"PATH", "/bin"}, {"XDG_RUNTIME_DIR", "/run/user/7"}});
  CHECK(environment.launcher == "none");
  CHECK(environment.rank == 0);
  CHECK(environment.size == 1);
  CHECK(environment.all_local);
  CHECK(environment.master_address.empty());
  CHECK(environment.runtime_directory == "/run/user/7");
  CHECK(environment.store_descriptor == -1);
}

TEST_CASE("the environment of this process is read when it is asked for") {
  REQUIRE(::setenv("ZERO_RANK", "1", 1) == 0);
  REQUIRE(::setenv("ZERO_WORLD_SIZE", "3", 1) == 0);
  const launch_environment environment = from_environment();
  ::unsetenv("ZERO_RANK");
  ::unsetenv("ZERO_WORLD_SIZE");
  CHECK(environment.rank == 1);
  CHECK(environment.size == 3);
}

TEST_CASE("of several launchers the first in a fixed order counts") {
  // Slurm starts one mpirun or torchrun per node: its numbers are another count.
  const variables other_slurm =
      changed(changed(by_slurm, "SLURM_PROCID", "1"), "SLURM_NTASKS", "2");
  CHECK(read(both(by_torchrun, other_slurm)).launcher == "torchrun");
  CHECK(read(both(by_openmpi, other_slurm)).launcher == "openmpi");
  CHECK(read(both(by_pmi, other_slurm)).launcher == "pmi");
  CHECK(read(both(by_openmpi, by_pmi)).launcher == "openmpi");
  CHECK(read(both(by_torchrun, by_openmpi)).launcher == "torchrun");
  CHECK(read(both(changed(by_zero, "ZERO_RANK", "3"), by_torchrun)).rank == 3);
  // One torchrun per node, started by mpirun.
  CHECK(read(both(by_torchrun, changed(by_openmpi, "OMPI_COMM_WORLD_RANK", "1"))).rank == 2);
}

TEST_CASE("launchers that contradict each other are an error that shows both") {
  const variables by_hand{{"RANK", "0"}, {"WORLD_SIZE", "4"}};
  const auto result = result_of([&] { read(both(by_hand, by_openmpi)); });
  CHECK(result.kind == store_outcome::rendezvous);
  CHECK(result.says("torchrun's variables say rank 0 of 4, those of openmpi say rank 2 of 4"));
  CHECK(result.says("set ZERO_RANK and ZERO_WORLD_SIZE"));
  CHECK(result.says("RANK='0'"));
  CHECK(result.says("OMPI_COMM_WORLD_RANK='2'"));
  CHECK(result_of([&] {
          read(both(by_openmpi, changed(by_pmi, "PMI_SIZE", "8")));
        }).says("openmpi's variables say rank 2 of 4, those of pmi say rank 2 of 8"));
  CHECK(read(both(by_zero, both(by_hand, by_openmpi))).launcher == "zero");
}

TEST_CASE("malformed numbers are errors that show them") {
  for (const std::string wrong :
       {" 3", "3 ", "abc", "-1", "+1", "", "0x1", "1.0", "2147483648", "99999999999999999999"}) {
    CAPTURE(wrong);
    for (const std::string name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
      CAPTURE(name);
      const auto result = result_of([&] { read(changed(by_torchrun, name, wrong)); });
      CHECK(result.kind == store_outcome::rendezvous);
      CHECK(result.says(name + " is '" + wrong + "', not a whole number from "));
      CHECK(result.says("looked for ZERO_RANK, ZERO_WORLD_SIZE, RANK, WORLD_SIZE, OMPI_COMM"));
    }
  }
  CHECK(result_of([&] { read(changed(by_torchrun, "MASTER_PORT", "0")); }).says("from 1 to 65535"));
  CHECK(result_of([&] { read(changed(by_torchrun, "MASTER_PORT", "65536")); }).says("'65536'"));
  CHECK(result_of([&] { read({{"ZERO_STORE_FD", "x"}}); }).says("ZERO_STORE_FD is 'x'"));
}

TEST_CASE("a rank outside of its world is an error") {
  for (const std::string rank : {"4", "5"}) {
    const auto result = result_of([&] { read(changed(by_openmpi, "OMPI_COMM_WORLD_RANK", rank)); });
    CHECK(result.says("OMPI_COMM_WORLD_RANK is " + rank +
                      ", which is not below OMPI_COMM_WORLD_SIZE, 4"));
  }
  CHECK(result_of([&] {
          read(changed(by_torchrun, "LOCAL_RANK", "2"));
        }).says("cannot have LOCAL_RANK=2 of 2 on its host"));
  CHECK(result_of([&] { read(changed(by_torchrun, "LOCAL_WORLD_SIZE", "5")); }).kind ==
        store_outcome::rendezvous);
  CHECK(result_of([&] { read(changed(by_torchrun, "WORLD_SIZE", "0")); }).says("from 1 to"));
}

TEST_CASE("half of a pair is an error that names the other half") {
  const std::vector<std::pair<variables, std::string>> launchers{
      {by_zero, "ZERO_RANK ZERO_WORLD_SIZE"},
      {by_torchrun, "RANK WORLD_SIZE"},
      {by_openmpi, "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE"},
      {by_pmi, "PMI_RANK PMI_SIZE"}};
  for (const auto& launcher : launchers) {
    const variables& given = launcher.first;
    const std::string& names = launcher.second;
    CAPTURE(names);
    const auto space = names.find(' ');
    const std::string rank = names.substr(0, space);
    const std::string size = names.substr(space + 1);
    CHECK(result_of([&] {
            read(without(given, size));
          }).says(rank + " is set, but " + size + " is not"));
    CHECK(result_of([&] {
            read(without(given, rank));
          }).says(size + " is set, but " + rank + " is not"));
  }
  CHECK(result_of([&] {
          read(without(by_torchrun, "MASTER_ADDR"));
        }).says("MASTER_PORT is set, but MASTER_ADDR, the host of rank 0, is not"));
  CHECK(result_of([&] {
          read(without(by_torchrun, "MASTER_PORT"));
        }).says("MASTER_ADDR is set, but neither MASTER_PORT nor ZERO_STORE_PORT is"));
  CHECK(result_of([&] { read(changed(by_torchrun, "MASTER_ADDR", "")); }).says("but empty"));
}

TEST_CASE("a batch script of Slurm is one process, and says so where more were asked for") {
  const auto result = result_of([&] { read(without(by_slurm, "SLURM_STEP_ID")); });
  CHECK(result.kind == store_outcome::rendezvous);
  CHECK(result.says("SLURM_NTASKS=4 tasks, but this process was not started by srun"));
  CHECK(result.says("ZERO_RANK=0 and ZERO_WORLD_SIZE=1"));
  const variables one_task{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "77"}};
  CHECK(read(one_task).launcher == "none");
  CHECK(read(one_task).size == 1);
}

TEST_CASE("a step of Slurm may have fewer tasks and nodes than its allocation") {
  auto given = changed(by_slurm, "SLURM_STEP_NUM_TASKS", "3");
  CHECK(read(given).size == 3);
  CHECK_FALSE(read(given).all_local);
  given["SLURM_STEP_NUM_NODES"] = "1";
  CHECK(read(given).all_local);
  CHECK(read(given).local_size == 3);
  CHECK(read(changed(by_slurm, "SLURM_NNODES", "1")).all_local);
}

TEST_CASE("launchers that say that all ranks are local are believed") {
  CHECK(read(changed(by_openmpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "4")).all_local);
  CHECK(read(changed(by_pmi, "MPI_LOCALNRANKS", "4")).all_local);
  CHECK(read(changed(by_torchrun, "LOCAL_WORLD_SIZE", "4")).all_local);
  CHECK_FALSE(read(without(without(by_torchrun, "LOCAL_WORLD_SIZE"), "LOCAL_RANK")).all_local);
}

TEST_CASE("the job's id differs from start to start") {
  CHECK(read(by_zero).job_id == "mine");
  CHECK(read(by_torchrun).job_id == "run.3");
  CHECK(read(without(by_torchrun, "TORCHELASTIC_RESTART_COUNT")).job_id == "run.0");
  CHECK(read(by_openmpi).job_id == "5678");
  CHECK(read(without(by_openmpi, "PMIX_NAMESPACE")).job_id == "1234");
  CHECK(read(by_slurm).job_id == "77.1");
  CHECK(read(by_pmi).job_id.empty());
  CHECK(read(changed(by_openmpi, "ZERO_JOB_ID", "other")).job_id == "other");
}

TEST_CASE("the store's port leaves torchrun's agent its own") {
  CHECK(read(by_torchrun).master_address == "10.0.0.1");
  CHECK(read(by_torchrun).store_port == 29501);
  CHECK(read(changed(by_torchrun, "TORCHELASTIC_USE_AGENT_STORE", "False")).store_port == 29500);
  CHECK(read(without(by_torchrun, "TORCHELASTIC_USE_AGENT_STORE")).store_port == 29500);
  CHECK(read(changed(by_torchrun, "ZERO_STORE_PORT", "4000")).store_port == 4000);
  const auto last = result_of([&] { read(changed(by_torchrun, "MASTER_PORT", "65535")); });
  CHECK(last.says("set ZERO_STORE_PORT"));
  const auto without_port = without(changed(by_torchrun, "ZERO_STORE_PORT", "4000"), "MASTER_PORT");
  CHECK(read(without_port).store_port == 4000);
}

TEST_CASE("a socket that a launcher hands over is for rank 0 only") {
  const auto given = changed(by_torchrun, "ZERO_STORE_FD", "5");
  CHECK(read(given).store_descriptor == -1);
  CHECK(read(changed(given, "RANK", "0")).store_descriptor == 5);
}
