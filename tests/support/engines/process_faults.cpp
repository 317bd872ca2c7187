// SPDX-License-Identifier: Apache-2.0
#include "support/process_faults.hpp"

#include <algorithm>
#include <csignal>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <zero/rendezvous/file_store.hpp>

#include "support/leftovers.hpp"
#include "support/process_runner.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

namespace zero::test {

namespace {

using namespace std::chrono_literals;
using seconds = std::chrono::duration<double>;

/// From the fault to the last survivor's error.
constexpr seconds survivors_limit{1.0};
/// How long a stopped rank or a rendezvous is waited for.
constexpr auto short_wait = 1000ms;
/// Until the parent gives up; longer than every timeout of the ranks.
constexpr auto parent_limit = 45s;

std::string text_of(seconds value) {
  return std::to_string(value.count()) + " s";
}

/// Lines about one run.
class findings {
 public:
  explicit findings(std::string name) : name_(std::move(name)) {}
  void expect(bool holds, const std::string& what) {
    if (!holds) text_ += name_ + ": " + what + "\n";
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

/// Whether peers may still be making their communicators when the victim is struck.
bool is_before_training(const struck_run& run) {
  return run.where.phase == "rendezvous" || run.where.phase == "connected";
}

bool is_at(const strike& where, const run_point& point) {
  return where.point && where.point->phase == point.phase && where.point->step == point.step &&
         where.point->operation == point.operation && where.point->index == point.index &&
         where.point->is_after == point.is_after;
}

met_rank meet(const process_ranks& ranks, const std::string& folder, int rank, int size,
              process_timeouts timeouts, const std::function<void()>& in_between = {}) {
  auto store = std::make_unique<any_store>(
      any_store::make<file_store>(folder, rank, size, file_store_options{"", timeouts.setup}));
  if (in_between) in_between();
  any_communicator communicator = ranks.make(*store, rank, size, timeouts);
  return {std::move(store), std::move(communicator)};
}

/// What `strike_here` does at the point is told to the parent first, with the sequence number.
template <class Strike>
auto start_training(const process_ranks& ranks, const struck_run& run, const std::string& folder,
                    process_timeouts timeouts, Strike strike_here) {
  const auto make = [&ranks, run, folder, timeouts, strike_here](int rank) {
    return meet(ranks, folder, rank, run.size, timeouts, [&] {
      if (!run.where.point && rank == run.victim) strike_here();
    });
  };
  const auto function = [run, strike_here](met_rank& here) {
    const bool is_victim = here.communicator.rank() == run.victim;
    process_training training;
    training.stage = run.stage;
    const auto observe = [&](const run_point& point) {
      if (!is_victim || !is_at(run.where, point)) return;
      announce("sequence " + std::to_string(point.sequence));
      strike_here();
    };
    try {
      observe({});
      announce("connected");
      return train(here.communicator, training, observe);
    } catch (...) {
      announce("failed");
      // The file store goes with the last rank that lives, and a killed process is seen to live
      // until the kernel has taken it apart.
      std::this_thread::sleep_for(100ms);
      throw;
    }
  };
  return start_processes(run.size, make, function);
}

/// The number that the victim announced.
std::optional<std::uint64_t> struck_sequence(const process_report& victim) {
  constexpr std::string_view prefix = "sequence ";
  for (const announcement& here : victim.announcements) {
    if (here.point.find(prefix) == 0) return std::stoull(here.point.substr(prefix.size()));
  }
  return std::nullopt;
}

void expect_survivor_knows(const process_ranks& ranks, const struck_run& run, int rank,
                           const rank_error& error, std::optional<std::uint64_t> struck,
                           findings& list) {
  const std::string seen = "rank " + std::to_string(rank) + " got \"" + error.text + "\"";
  const communicator_failure& where = error.where;
  list.expect(where.backend == ranks.backend, seen + ": backend \"" + where.backend + "\"");
  list.expect(where.rank == rank, seen + ": reported by rank " + std::to_string(where.rank));
  list.expect(where.peer == run.victim, seen + ": peer " + std::to_string(where.peer));
  list.expect(!where.operation.empty(), seen + ": names no operation");
  // A rank may be one collective ahead of another when the latter has not received everything.
  const auto number = where.sequence;
  list.expect(struck && number + 1 >= *struck && number <= *struck + 1,
              seen + ": struck at number " + (struck ? std::to_string(*struck) : "none"));
}

void expect_nothing_left(const leftovers& before, const temporary_folder& folder, pid_t group,
                         findings& list) {
  const std::string left = before.found(group);
  list.expect(left.empty(), "left over: " + left);
  for (const std::string& file : folder.files()) list.expect(false, "left over: " + file);
}

}  // namespace

std::vector<strike> strikes_of(int stage) {
  using enum collective;
  const auto in_step = [](collective operation, std::uint64_t index, bool is_after = false) {
    return run_point{run_phase::step, 1, operation, index, is_after};
  };
  std::vector<strike> all{
      {"rendezvous", std::nullopt},
      {"connected", run_point{run_phase::construction, 0, std::nullopt}},
      {"fingerprint", run_point{run_phase::construction, 0, all_gather}},
      {"broadcast", run_point{run_phase::import, 0, broadcast}},
      {"reduce first", in_step(reduce_scatter, 0)},
      {"reduce middle", in_step(reduce_scatter, process_units / 2)},
      {"reduce last", in_step(reduce_scatter, process_units - 1)},
      {"reduce last, after", in_step(reduce_scatter, process_units - 1, true)},
      {"flag and norm", in_step(all_reduce, 0)},
      {"update", in_step(all_reduce, 0, true)},
      {"idle", run_point{run_phase::idle, 1, std::nullopt}},
  };
  if (stage == 3) {
    all.push_back({"gather", in_step(all_gather, 0)});
    all.push_back({"parameter gather", in_step(all_gather, process_units)});
  } else {
    all.push_back({"parameter gather", in_step(all_gather, 0)});
  }
  return all;
}

std::string struck_run::name() const {
  return where.phase + ", stage " + std::to_string(stage) + ", N = " + std::to_string(size) +
         ", victim " + std::to_string(victim);
}

std::vector<struck_run> all_struck_runs() {
  std::vector<struck_run> runs;
  for (int stage = 0; stage < 4; ++stage) {
    for (const strike& where : strikes_of(stage)) {
      for (const int size : {2, 3, 4}) {
        for (const int victim : {0, size - 1}) runs.push_back({where, stage, size, victim});
      }
    }
  }
  return runs;
}

std::vector<struck_run> sample_of(std::vector<struck_run> runs, std::size_t count,
                                  std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::shuffle(runs.begin(), runs.end(), random);
  // One of each phase comes first, so that a small sample leaves no phase out.
  std::set<std::string> seen;
  std::stable_partition(runs.begin(), runs.end(),
                        [&](const struck_run& run) { return seen.insert(run.where.phase).second; });
  runs.resize(std::min(count, runs.size()));
  return runs;
}

namespace {

/// When the rank's call failed: it may not have got as far as its training.
process_clock::time_point failure_time(const process_report& report) {
  for (const announcement& here : report.announcements) {
    if (here.point == "failed") return here.when;
  }
  return report.ended;
}

/// What a survivor of a kill reports, and when.
void check_survivor(const process_ranks& ranks, const struck_run& run, int rank,
                    const process_report& survivor, const process_report& victim,
                    process_clock::time_point killed, seconds limit, findings& list) {
  const rank_error error = describe(survivor.error);
  const seconds took = failure_time(survivor) - killed;
  const std::string seen = "rank " + std::to_string(rank) + " got \"" + error.text + "\"";
  list.expect(took <= limit, seen + " only after " + text_of(took));
  if (!is_before_training(run)) {
    list.expect(error.kind == outcome::aborted, seen + ": no aborted_error");
    expect_survivor_knows(ranks, run, rank, error, struck_sequence(victim), list);
    return;
  }
  // It may be the store that misses the victim, the constructor, or the first collective.
  const bool is_typed = error.kind == outcome::error || error.kind == outcome::timeout ||
                        error.kind == outcome::aborted || error.kind == outcome::communicator;
  list.expect(is_typed, seen + ": no typed error");
}

}  // namespace

std::string kill_violations(const process_ranks& ranks, const struck_run& run) {
  const temporary_folder folder;
  const leftovers before;
  findings list(ranks.backend + ", killed at " + run.name());
  process_timeouts timeouts;
  if (is_before_training(run)) timeouts.setup = 2 * short_wait;
  const bool is_first = run.where.phase == "fingerprint";
  auto running = start_training(ranks, run, folder / "store", timeouts, [is_first] {
    // The first collective is struck when every rank has its communicator.
    if (is_first) stop_here("stops");
    die_here("dies");
  });
  if (is_first) {
    for (int rank = 0; rank < run.size; ++rank) running.wait_for(rank, "connected");
    running.wait_until_stopped(run.victim);
    running.send_signal(run.victim, SIGCONT);
  }
  const auto result = running.collect(parent_limit);
  const process_report& victim = result.report(run.victim);
  if (describe(victim.error).text.find("signal 9") == std::string::npos) {
    list.expect(false, "the victim did not die: " + describe(victim.error).text);
    return list.take();
  }
  const seconds limit = survivors_limit + (is_before_training(run) ? timeouts.setup : 0ms);
  for (int rank = 0; rank < run.size; ++rank) {
    if (rank == run.victim) continue;
    check_survivor(ranks, run, rank, result.report(rank), victim, victim.reached("dies"), limit,
                   list);
  }
  expect_nothing_left(before, folder, running.group(), list);
  return list.take();
}

std::string long_stop_violations(const process_ranks& ranks, const struck_run& run) {
  const temporary_folder folder;
  const leftovers before;
  findings list(ranks.backend + ", stopped for long at " + run.name());
  const process_timeouts timeouts{.operation = short_wait};
  auto running = start_training(ranks, run, folder / "store", timeouts, [] { stop_here("stops"); });
  const auto stopped = running.wait_for(run.victim, "stops").when;
  for (int rank = 0; rank < run.size; ++rank) {
    if (rank == run.victim) continue;
    const seconds took = running.wait_for(rank, "failed").when - stopped;
    const std::string seen = "rank " + std::to_string(rank) + " failed after " + text_of(took);
    // Its wait may have begun a little before the stop.
    list.expect(took >= seconds(short_wait) / 2, seen);
    list.expect(took <= seconds(short_wait) + survivors_limit, seen);
  }
  running.send_signal(run.victim, SIGCONT);
  const auto result = running.collect(parent_limit);
  const auto struck = struck_sequence(result.report(run.victim));
  for (int rank = 0; rank < run.size; ++rank) {
    const rank_error error = describe(result.error(rank));
    const std::string seen = "rank " + std::to_string(rank) + " got \"" + error.text + "\"";
    if (rank == run.victim) {
      list.expect(error.kind == outcome::aborted || error.kind == outcome::timeout,
                  seen + ": the stopped rank has to fail when it goes on");
      continue;
    }
    // Whose deadline passes first tells the others, for whom it is a failure of the world.
    list.expect(error.kind == outcome::timeout || error.kind == outcome::aborted,
                seen + ": no timeout_error");
    expect_survivor_knows(ranks, run, rank, error, struck, list);
  }
  bool is_timeout_seen = false;
  for (int rank = 0; rank < run.size; ++rank) {
    is_timeout_seen |= describe(result.error(rank)).kind == outcome::timeout;
  }
  list.expect(is_timeout_seen, "no rank got a timeout_error");
  expect_nothing_left(before, folder, running.group(), list);
  return list.take();
}

std::string short_stop_violations(const process_ranks& ranks, const struck_run& run) {
  // What an undisturbed run ends with; the same for every strike.
  static std::map<std::pair<int, int>, std::vector<std::uint32_t>> undisturbed;
  const process_timeouts timeouts;
  auto& expected = undisturbed[{run.stage, run.size}];
  if (expected.empty()) {
    const temporary_folder folder;
    auto running = start_training(ranks, run, folder / "store", timeouts, [] {});
    expected = running.collect(parent_limit).values().front();
  }
  const temporary_folder folder;
  const leftovers before;
  findings list(ranks.backend + ", stopped shortly at " + run.name());
  auto running = start_training(ranks, run, folder / "store", timeouts, [] { stop_here("stops"); });
  running.wait_for(run.victim, "stops");
  running.wait_until_stopped(run.victim);
  std::this_thread::sleep_for(300ms);
  running.send_signal(run.victim, SIGCONT);
  const auto result = running.collect(parent_limit);
  for (int rank = 0; rank < run.size; ++rank) {
    const std::string seen = "rank " + std::to_string(rank);
    if (result.error(rank)) {
      list.expect(false, seen + " got \"" + describe(result.error(rank)).text + "\"");
    } else {
      list.expect(result.value(rank) == expected, seen + " ended with other parameters");
    }
  }
  expect_nothing_left(before, folder, running.group(), list);
  return list.take();
}

// --- R9 ------------------------------------------------------------------------------------------

namespace {

struct disagreement {
  std::string name;
  std::string field;  ///< what the error names
  std::function<void(process_training&)> change;
};

const std::vector<disagreement>& all_disagreements() {
  static const std::vector<disagreement> all{
      {"count", "tensor shapes",
       [](process_training& t) { t.tensors[3].shape = {t.tensors[3].shape[0] + 1}; }},
      {"shape with the same total", "tensor shapes",
       [](process_training& t) { std::swap(t.tensors[2].shape[0], t.tensors[2].shape[1]); }},
      {"order", "tensor and unit names",
       [](process_training& t) { std::swap(t.tensors[4], t.tensors[5]); }},
      {"type", "element types and trainable flags",
       [](process_training& t) { t.tensors[6].is_trainable = false; }},
      {"group", "parameter groups", [](process_training& t) { t.tensors[1].group = decay; }},
      {"hyperparameter", "optimizer", [](process_training& t) { t.optimizer.weight_decay = 0.2F; }},
      {"precision", "element types",
       [](process_training& t) { t.precision = process_precision::bf16_mixed; }},
      {"stage", "stage and precision", [](process_training& t) { t.stage = 2; }},
      {"options", "options and number of ranks",
       [](process_training& t) { t.options.accumulation = accumulation::reduce_last; }},
      {"name", "tensor and unit names", [](process_training& t) { t.tensors[7].name = "other"; }},
      {"version", "library version", {}},
      {"N", "", {}},
  };
  return all;
}

std::string without_place(const std::string& text) {
  const auto start = text.find("the ranks were built");
  return start == std::string::npos ? text : text.substr(start);
}

/// The bisection ends with the rank's own view of the tensor, which may differ.
std::string common_part(const std::string& text) {
  return without_place(text).substr(0, without_place(text).find(", here "));
}

/// Ranks that have another number of ranks in mind do not even meet.
std::string size_disagreement_violations(const process_ranks& ranks, int size) {
  const temporary_folder folder;
  const leftovers before;
  findings list(ranks.backend + ", disagreement about N, N = " + std::to_string(size));
  auto running = start_bare_processes(size, [&](bare_rank& rank) {
    const bool is_odd_one = rank.number == size - 1;
    // The last to come: who comes after a refused meeting finds nobody and has to wait.
    if (is_odd_one) std::this_thread::sleep_for(300ms);
    meet(ranks, folder / "store", rank.number, size + is_odd_one, {});
  });
  const auto result = running.collect(parent_limit);
  for (int rank = 0; rank < size; ++rank) {
    const rank_error error = describe(result.error(rank));
    const std::string seen = "rank " + std::to_string(rank) + " got \"" + error.text + "\"";
    list.expect(error.kind == outcome::error && error.says(std::to_string(size)) &&
                    error.says(std::to_string(size + 1)),
                seen + ", which does not name both sizes");
  }
  expect_nothing_left(before, folder, running.group(), list);
  return list.take();
}

}  // namespace

std::vector<std::string> disagreements() {
  std::vector<std::string> names;
  for (const disagreement& one : all_disagreements()) names.push_back(one.name);
  return names;
}

std::string disagreement_violations(const process_ranks& ranks, const std::string& kind, int size) {
  if (kind == "N") return size_disagreement_violations(ranks, size);
  const auto& all = all_disagreements();
  const auto chosen = std::find_if(all.begin(), all.end(),
                                   [&](const disagreement& one) { return one.name == kind; });
  if (chosen == all.end()) return "no such disagreement: " + kind + "\n";
  const temporary_folder folder;
  const leftovers before;
  findings list(ranks.backend + ", disagreement about " + kind + ", N = " + std::to_string(size));
  auto running = start_processes(
      size, [&](int rank) { return meet(ranks, folder / "store", rank, size, {}); },
      [&](met_rank& here) {
        const bool is_odd_one = here.communicator.rank() == size - 1;
        const auto watch = [](const run_point& point) {
          if (point.moves_payload) throw std::runtime_error("payload moved");
        };
        process_training training;
        training.stage = 1;
        if (is_odd_one && chosen->change) chosen->change(training);
        if (!chosen->change) return compare_versions(here.communicator, is_odd_one, watch);
        train(here.communicator, training, watch);
      });
  const auto result = running.collect(parent_limit);
  const std::string first = describe(result.error(0)).text;
  for (int rank = 0; rank < size; ++rank) {
    const rank_error error = describe(result.error(rank));
    const std::string seen = "rank " + std::to_string(rank) + " got \"" + error.text + "\"";
    list.expect(error.kind == outcome::mismatch, seen + ": no mismatch_error");
    list.expect(error.says(chosen->field), seen + ": does not name " + chosen->field);
    list.expect(common_part(error.text) == common_part(first), seen + ", rank 0 \"" + first + "\"");
    list.expect(error.says("rank " + std::to_string(size - 1) + " differs"),
                seen + ": does not name the odd one");
  }
  expect_nothing_left(before, folder, running.group(), list);
  return list.take();
}

}  // namespace zero::test
