// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

/// What the launcher told this process through environment variables.
struct launch_environment {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  ///< among the ranks of this host, where the launcher says it
  std::optional<int> local_size;
  std::string launcher = "none";  ///< "zero", "torchrun", "openmpi", "pmi", "slurm" or "none"
  std::string job_id;             ///< the same on all ranks, another one for each start; or empty
  std::string master_address;     ///< rank 0's host; empty: nobody said
  std::uint16_t store_port = 0;   ///< the port there at which zero's own store meets
  int store_descriptor = -1;      ///< rank 0: a socket that listens at that port already
  bool all_local = true;          ///< the launcher says that all ranks are on one host
  std::string runtime_directory;  ///< for files of this user that do not outlive the session
};

/// Looks up one variable: its value, or a null pointer.
using environment_lookup = std::function<const char*(const char* name)>;

namespace detail {

/// The names that a launcher uses. A null pointer: it has no such variable.
struct launcher_names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

/// In the order in which they are looked for. Slurm is last: mpirun and torchrun are often started
/// by it, once per node, so that its numbers then count launchers.
inline constexpr std::array<launcher_names, 5> known_launchers{{
    {"zero", "ZERO_RANK", "ZERO_WORLD_SIZE", "ZERO_LOCAL_RANK", "ZERO_LOCAL_WORLD_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
}};

class environment_reader {
 public:
  explicit environment_reader(const environment_lookup& lookup) : lookup_(lookup) {}

  launch_environment read() const {
    launch_environment environment;
    for (const launcher_names& names : known_launchers) {
      if (!is_present(names)) continue;
      environment = read_ranks(names);
      refuse_contradiction(environment);
      break;
    }
    environment.job_id = job_id_of(environment.launcher);
    read_master(environment);
    environment.runtime_directory = text("XDG_RUNTIME_DIR").value_or("");
    if (environment.rank == 0) {
      constexpr int most = std::numeric_limits<int>::max();
      environment.store_descriptor = number("ZERO_STORE_FD", 0, most).value_or(-1);
    }
    return environment;
  }

 private:
  std::optional<std::string> text(const char* name) const {
    const char* value = name == nullptr ? nullptr : lookup_(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }

  /// Digits and nothing else: a stray blank or sign is a mistake in a script, and should be seen.
  std::optional<int> number(const char* name, int least, int most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int result = 0;
    const char* end = value->data() + value->size();
    const auto [stop, failed] = std::from_chars(value->data(), end, result);
    const bool only_digits = value->find_first_not_of("0123456789") == std::string::npos;
    if (value->empty() || !only_digits || failed != std::errc{} || stop != end || result < least ||
        result > most) {
      fail(std::string(name) + " is '" + *value + "', not a whole number from " +
           std::to_string(least) + " to " + std::to_string(most));
    }
    return result;
  }

  [[noreturn]] void fail(const std::string& reason) const {
    std::string found;
    std::string looked_for;
    for (const launcher_names& names : known_launchers) {
      for (const char* name : {names.rank, names.size}) {
        if (!looked_for.empty()) looked_for += ", ";
        looked_for += name;
        if (const auto value = text(name)) found += ' ' + std::string(name) + "='" + *value + '\'';
      }
    }
    throw rendezvous_error(reason + "; looked for " + looked_for + "; found" +
                               (found.empty() ? " none of them" : found),
                           {"launch environment", "", 0});
  }

  bool is_present(const launcher_names& names) const {
    if (std::string_view(names.launcher) == "slurm") return is_started_by_srun();
    return text(names.rank) || text(names.size);
  }

  /// A script that sbatch runs, or a shell inside an allocation, has the variables of a task too,
  /// but is one process however many tasks were asked for. Only srun starts steps.
  bool is_started_by_srun() const {
    if (text("SLURM_STEP_ID")) return text("SLURM_PROCID").has_value();
    const auto tasks = number("SLURM_NTASKS", 1, std::numeric_limits<int>::max());
    if (tasks.value_or(1) > 1 && text("SLURM_PROCID")) {
      fail("the allocation is for SLURM_NTASKS=" + std::to_string(*tasks) +
           " tasks, but this process was not started by srun (SLURM_STEP_ID is not set): start it "
           "with srun, or set ZERO_RANK=0 and ZERO_WORLD_SIZE=1 to run one process");
    }
    return false;
  }

  launch_environment read_ranks(const launcher_names& names) const {
    constexpr int most = std::numeric_limits<int>::max();
    const bool is_slurm = std::string_view(names.launcher) == "slurm";
    // A step may have fewer tasks than its allocation.
    const char* size_name =
        is_slurm && text("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : names.size;
    const auto rank = number(names.rank, 0, most);
    const auto size = number(size_name, 1, most);
    if (!rank || !size) {
      fail(std::string(rank ? names.rank : size_name) + " is set, but " +
           (rank ? size_name : names.rank) + " is not");
    }
    if (*rank >= *size) {
      fail(std::string(names.rank) + " is " + std::to_string(*rank) + ", which is not below " +
           size_name + ", " + std::to_string(*size));
    }
    launch_environment environment;
    environment.rank = *rank;
    environment.size = *size;
    environment.launcher = names.launcher;
    environment.local_rank = number(names.local_rank, 0, most);
    environment.local_size = number(names.local_size, 1, most);
    if (is_slurm) {
      const char* nodes_name =
          text("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
      if (number(nodes_name, 1, most) == 1) environment.local_size = *size;
    }
    check_local(environment, names);
    environment.all_local = *size == 1 || environment.local_size == *size;
    return environment;
  }

  void check_local(const launch_environment& environment, const launcher_names& names) const {
    const int local_size = environment.local_size.value_or(environment.size);
    if (local_size > environment.size || environment.local_rank.value_or(0) >= local_size) {
      fail("rank " + std::to_string(environment.rank) + " of " + std::to_string(environment.size) +
           " cannot have " + names.local_rank + "=" +
           std::to_string(environment.local_rank.value_or(0)) + " of " +
           std::to_string(local_size) + " on its host");
    }
  }

  /// A RANK that a shell exported long ago would make every rank of an mpirun the same one. With
  /// torchrun's own variables present, mpirun may have started one torchrun per node: no mistake.
  void refuse_contradiction(const launch_environment& chosen) const {
    if (chosen.launcher != "torchrun" && chosen.launcher != "openmpi") return;
    if (text("TORCHELASTIC_RUN_ID")) return;
    for (const launcher_names& names : known_launchers) {
      const std::string_view other = names.launcher;
      if (other == chosen.launcher || (other != "openmpi" && other != "pmi")) continue;
      if (!text(names.rank) || !text(names.size)) continue;
      constexpr int most = std::numeric_limits<int>::max();
      const int rank = *number(names.rank, 0, most);
      const int size = *number(names.size, 1, most);
      if (rank == chosen.rank && size == chosen.size) continue;
      fail(chosen.launcher + "'s variables say rank " + std::to_string(chosen.rank) + " of " +
           std::to_string(chosen.size) + ", those of " + std::string(other) + " say rank " +
           std::to_string(rank) + " of " + std::to_string(size) +
           ": unset those that are left over, or set ZERO_RANK and ZERO_WORLD_SIZE");
    }
  }

  std::string job_id_of(std::string_view launcher) const {
    if (const auto given = text("ZERO_JOB_ID")) return *given;
    if (launcher == "torchrun") {
      const auto run = text("TORCHELASTIC_RUN_ID");
      if (!run) return {};
      // After a failure the agent starts the ranks again under the same id.
      return *run + '.' + text("TORCHELASTIC_RESTART_COUNT").value_or("0");
    }
    if (launcher == "openmpi" || launcher == "pmi") {
      if (const auto name = text("PMIX_NAMESPACE")) return *name;
      return text("OMPI_MCA_ess_base_jobid").value_or("");
    }
    if (launcher == "slurm") {
      const auto job = text("SLURM_JOB_ID");
      return job ? *job + '.' + *text("SLURM_STEP_ID") : std::string();
    }
    return {};
  }

  void read_master(launch_environment& environment) const {
    constexpr int most = std::numeric_limits<std::uint16_t>::max();
    const auto address = text("MASTER_ADDR");
    auto port = number("MASTER_PORT", 1, most);
    const auto own_port = number("ZERO_STORE_PORT", 1, most);
    if (!address && (port || own_port)) {
      fail(std::string(port ? "MASTER_PORT" : "ZERO_STORE_PORT") +
           " is set, but MASTER_ADDR, the host of rank 0, is not");
    }
    if (!address) return;
    if (address->empty()) fail("MASTER_ADDR is set, but empty");
    if (own_port) {
      port = own_port;
    } else if (port && text("TORCHELASTIC_USE_AGENT_STORE") == "True") {
      // torchrun's agent listens at MASTER_PORT with a store of its own, and speaks its own
      // protocol there: rank 0 could not listen, and the others would talk to a stranger.
      port = *port + 1;
      if (*port > most) {
        fail(
            "torchrun's agent uses MASTER_PORT=65535 and there is no port above it; set "
            "ZERO_STORE_PORT to a free port of rank 0's host");
      }
    }
    if (!port) fail("MASTER_ADDR is set, but neither MASTER_PORT nor ZERO_STORE_PORT is");
    environment.master_address = *address;
    environment.store_port = static_cast<std::uint16_t>(*port);
  }

  const environment_lookup& lookup_;
};

}  // namespace detail

/// Reads rank, size and meeting place from the variables of zero (ZERO_RANK, ZERO_WORLD_SIZE,
/// ZERO_LOCAL_RANK, ZERO_LOCAL_WORLD_SIZE), torchrun, Open MPI, PMI (MPICH, Intel MPI) or Slurm;
/// the first of them that is there counts. Without any, this process is a world of its own.
///
/// MASTER_ADDR and MASTER_PORT name rank 0's host and a port for all launchers; ZERO_STORE_PORT
/// replaces the port, ZERO_JOB_ID the launcher's job id.
/// Throws: rendezvous_error for values that are malformed, missing or contradict each other, with
/// what was looked for and what was found.
inline launch_environment from_environment(const environment_lookup& lookup) {
  return detail::environment_reader(lookup).read();
}

/// The same, from the environment of this process.
inline launch_environment from_environment() {
  return from_environment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace zero
