// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter, all-gather and small all-reduce of every backend, side by side with what they are
// measured against: Gloo's and MPI's own collectives, plain sockets, and memcpy of the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "contender.hpp"
#include "measure.hpp"
#include "report.hpp"
#include "team.hpp"
#include "worker.hpp"

namespace collectives_bench {
namespace {

struct options {
  std::vector<double> sizes_mebibytes{1, 64, 256};
  std::vector<int> ranks{2, 4};
  int repetitions = 9;
  std::string only;
  std::string json_file;
  bool is_quick = false;
  bool lists = false;
  // Of a rank that mpirun started; not for users.
  std::string mpi_socket;
  std::uint64_t mpi_bytes = 0;
};

constexpr int most_ranks = 8;  // up to here the sums that are checked are exact in bfloat16
constexpr std::uint64_t latency_doubles = 8;

options parse(int argument_count, char** arguments) {
  options chosen;
  CLI::App program(
      "Times the collectives of every backend side by side, in turn. Each contender's result is\n"
      "checked before it is timed. A time is that of the slowest rank; CPU time is that of all\n"
      "threads of all ranks; GB/s is bytes of the full range / time. 1 MiB = 2^20 bytes.");
  auto* const sizes =
      program.add_option("--sizes", chosen.sizes_mebibytes, "MiB of the full range");
  sizes->delimiter(',')->check(CLI::Range(0.001, 65536.0));
  program.add_option("--ranks", chosen.ranks, "Numbers of ranks, 2 to 8")
      ->delimiter(',')
      ->check(CLI::Range(2, most_ranks));
  auto* const repetitions = program.add_option("--repetitions", chosen.repetitions,
                                               "How often each contender is measured");
  repetitions->check(CLI::Range(1, 10000));
  program.add_option("--only", chosen.only, "Only contenders whose name contains this text");
  program.add_option("--json", chosen.json_file, "Write all measurements to this file");
  program.add_flag("--quick", chosen.is_quick, "Sizes 1 and 8 MiB, 3 repetitions")
      ->excludes(sizes)
      ->excludes(repetitions);
  program.add_flag("--list", chosen.lists, "Say what would be measured, and measure nothing");
  program.add_option("--mpi-rank-of", chosen.mpi_socket)->group("");
  program.add_option("--bytes", chosen.mpi_bytes)->group("");
  try {
    program.parse(argument_count, arguments);
  } catch (const CLI::ParseError& error) {
    std::exit(program.exit(error));
  }
  if (chosen.is_quick) {
    chosen.sizes_mebibytes = {1, 8};
    chosen.repetitions = 3;
  }
  return chosen;
}

std::vector<contender_id> contenders_for(operation what, const std::string& only) {
  std::vector<contender_id> chosen;
  for (const contender_facts& one : all_contenders()) {
    const std::string_view name = one.name(what);
    if (one.is_built && !name.empty() && name.find(only) != std::string_view::npos) {
      chosen.push_back(one.id);
    }
  }
  return chosen;
}

/// Whole shards for every rank.
workload make_workload(operation what, element type, double mebibytes, int ranks) {
  workload load{what, type, 0};
  const auto elements = static_cast<std::uint64_t>(mebibytes * mebibyte) / load.element_bytes();
  const auto n = static_cast<std::uint64_t>(ranks);
  load.elements = (elements + n - 1) / n * n;
  return load;
}

std::vector<workload> workloads_for(const options& chosen, int ranks) {
  std::vector<workload> loads;
  for (const operation what : {operation::reduce_scatter, operation::all_gather}) {
    for (const element type : {element::fp32, element::bf16}) {
      for (const double size : chosen.sizes_mebibytes) {
        loads.push_back(make_workload(what, type, size, ranks));
      }
    }
  }
  loads.push_back({operation::all_reduce, element::fp32, latency_doubles});
  return loads;
}

bool is_needed(team_kind kind, const std::string& only) {
  for (const operation what :
       {operation::reduce_scatter, operation::all_gather, operation::all_reduce}) {
    const auto chosen = contenders_for(what, only);
    if (std::any_of(chosen.begin(), chosen.end(),
                    [&](contender_id id) { return facts_of(id).team == kind; })) {
      return true;
    }
  }
  return false;
}

/// All measurements with that many ranks. The teams go before the next ones are started.
void measure_ranks(const options& chosen, int ranks, std::vector<comparison>& all) {
  const temporary_folder folder;
  const std::vector<workload> loads = workloads_for(chosen, ranks);
  std::uint64_t most_bytes = 0;
  for (const workload& load : loads) most_bytes = std::max(most_bytes, load.bytes());

  std::vector<team> teams;
  for (const team_kind kind : all_team_kinds) {
    if (is_needed(kind, chosen.only)) {
      teams.push_back(start_team(kind, ranks, most_bytes, folder.path()));
    }
  }
  for (team& one : teams) one.await_ready();
  for (const workload& load : loads) {
    const std::vector<contender_id> contenders = contenders_for(load.what, chosen.only);
    if (contenders.empty()) continue;
    all.push_back(measure(teams, contenders, load, chosen.repetitions));
    print_table(all.back());
  }
}

void list(const options& chosen) {
  for (const operation what :
       {operation::reduce_scatter, operation::all_gather, operation::all_reduce}) {
    std::printf("%s\n", std::string(name_of(what)).c_str());
    for (const contender_id id : contenders_for(what, chosen.only)) {
      std::printf("  %s\n", std::string(facts_of(id).name(what)).c_str());
    }
  }
  for (const contender_facts& one : all_contenders()) {
    if (one.is_built) continue;
    std::printf("left out, its library was not found: %s\n",
                std::string(one.name(operation::reduce_scatter)).c_str());
  }
}

int run(const options& chosen) {
#ifdef BENCH_MPIRUN
  if (!chosen.mpi_socket.empty()) return run_mpi_rank(chosen.mpi_socket, chosen.mpi_bytes);
#endif
  if (chosen.lists) {
    list(chosen);
    return 0;
  }
  interrupt_by_signals();
  std::vector<comparison> all;
  for (const int ranks : chosen.ranks) measure_ranks(chosen, ranks, all);
  if (all.empty()) throw std::runtime_error("no contender has '" + chosen.only + "' in its name");
  print_targets(all);
  if (!chosen.json_file.empty()) write_json(chosen.json_file, all);
  return 0;
}

}  // namespace
}  // namespace collectives_bench

int main(int argument_count, char** arguments) {
  try {
    return collectives_bench::run(collectives_bench::parse(argument_count, arguments));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_collectives: %s\n", error.what());
    return 1;
  }
}
