// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank simulated_device fault
// timeout: 300
// links: zero_simulated_device zero_test_engines
#include <catch2/catch.hpp>

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "integration/cuda/cuda_training.hpp"
#include "integration/cuda/nccl_training.hpp"
#include "integration/cuda/small_layout.hpp"

using namespace zero;
using namespace zero::test;

// Every call of the CUDA runtime and of NCCL that a rank makes in a training, from its communicator
// to the destructors, fails once, or from then on, or does not return. All ranks end with typed
// errors, or the training ends with the right bits where the call only gives something back.

namespace {

constexpr std::uint64_t steps = 2;
constexpr std::chrono::milliseconds patience = std::chrono::seconds(30);

class at_end {
 public:
  explicit at_end(const std::function<void()>& call) : call_(call) {}
  at_end(const at_end&) = delete;
  at_end& operator=(const at_end&) = delete;
  ~at_end() { call_(); }

 private:
  const std::function<void()>& call_;
};

/// Trains two steps; `rank_ends` is called when a rank's engine is gone.
template <class Ranks, class S>
device_run train_briefly(int ranks, std::chrono::milliseconds timeout,
                         const std::function<void()>& rank_ends) {
  using communicator = typename Ranks::communicator;
  device_run run;
  run.states.resize(static_cast<std::size_t>(ranks));
  const auto train = [&](communicator& comm, cuda_queue q) {
    const at_end end(rank_ends);
    cuda_typed_engine<engine<S, bf16_mixed, communicator, adamw>> engine(
        comm, small_layout(3), adamw{}, test_settings(), q);
    engine.initialize(initial_values);
    const auto reports = engine.run_steps_ahead(
        comm.rank(), {.steps = steps, .arguments = {.lr = 0.01, .clip = 0.5}});
    run.states[static_cast<std::size_t>(comm.rank())] = state_of(engine, reports);
  };
  run.errors = Ranks::run(ranks, train, timeout);
  return run;
}

/// One kind of training.
struct training {
  std::string name;
  bool is_nccl;
  int ranks;
  device_run (*train)(int, std::chrono::milliseconds, const std::function<void()>&);

  simulated_device_options machine(std::uint64_t seed) const {
    return machine_of(seed, is_nccl ? ranks : 1);
  }
};

template <class Ranks>
std::vector<training> trainings_of(const std::string& backend, bool is_nccl) {
  std::vector<training> all;
  const auto add = [&]<class S>(stage_kind stage, S) {
    for (int ranks = 2; ranks <= (full_counts() ? 3 : 2); ++ranks) {
      all.push_back(
          {backend + ", " + std::string(name_of(stage)) + ", " + std::to_string(ranks) + " ranks",
           is_nccl, ranks, &train_briefly<Ranks, S>});
    }
  };
  add(stage_kind::stage0, stage0{});
  add(stage_kind::stage1, stage1{});
  add(stage_kind::stage2, stage2{});
  add(stage_kind::stage3, stage3{});
  add(stage_kind::stage3_keep_gathered, stage3_keep_gathered{});
  return all;
}

/// Calls that give something back, or whose answer is not needed: where one fails, what it is about
/// stays with the process at worst.
const std::map<std::string, std::string>& harmless() {
  static const std::map<std::string, std::string> reasons = {
      {"cudaEventDestroy", "only destructors call it, and they have no way to report it"},
      {"cudaEventQuery", "in the destructor of a communicator, which aborts then, as all is done"},
      {"cudaEventSynchronize", "in the destructor of reports, which waits to be sure"},
      {"cudaFree", "as cudaEventDestroy"},
      {"cudaFreeHost", "as cudaEventDestroy"},
      {"cudaStreamDestroy", "as cudaEventDestroy"},
      {"cudaSetDevice", "at the end of a cuda_device_guard: whoever needs a device sets it"},
      {"ncclCommFinalize", "the communicator is aborted instead, when all is done"},
      {"ncclCommDestroy", "as cudaEventDestroy"},
      {"ncclCommGetAsyncError", "while it is finalized: as ncclCommFinalize"},
  };
  return reasons;
}

/// What stays where the call of this function fails that was to end it.
std::string made_by(const std::string& function) {
  if (function == "cudaEventDestroy") return "cudaEventCreateWithFlags";
  if (function == "cudaFree") return "cudaMalloc";
  if (function == "cudaFreeHost") return "cudaMallocHost";
  if (function == "cudaStreamDestroy") return "cudaStreamCreateWithPriority";
  if (function == "ncclCommDestroy") return "ncclCommInitRankConfig";
  return "";
}

bool is_nccl(const std::string& function) {
  return function.rfind("nccl", 0) == 0;
}

/// A code that the function may return, by a number.
int code_for(const std::string& function, std::uint64_t number) {
  constexpr int cuda[] = {cudaErrorMemoryAllocation, cudaErrorIllegalAddress,
                          cudaErrorLaunchFailure};
  constexpr int nccl[] = {ncclUnhandledCudaError, ncclSystemError, ncclInternalError,
                          ncclInvalidArgument, ncclRemoteError};
  return is_nccl(function) ? nccl[number % std::size(nccl)] : cuda[number % std::size(cuda)];
}

bool is_typed(const rank_error& error) {
  return error.kind == outcome::communicator || error.kind == outcome::aborted ||
         error.kind == outcome::error;
}

/// Empty where the ranks ended as they must; `is_swallowed` where nobody has an error.
std::string verdict(const device_run& run, const trained_state& expected, bool times_out = false) {
  for (std::size_t rank = 0; rank < run.errors.size(); ++rank) {
    const rank_error& error = run.errors[rank];
    const std::string where = "rank " + std::to_string(rank) + ": ";
    if (error.kind == outcome::returned) {
      if (run.states[rank] != expected) return where + "another state";
    } else if (!is_typed(error) && !(times_out && error.kind == outcome::timeout)) {
      return where + error.text;
    }
  }
  return "";
}

bool has_errors(const device_run& run) {
  return std::any_of(run.errors.begin(), run.errors.end(),
                     [](const rank_error& error) { return error.kind != outcome::returned; });
}

/// What was found, and what is left over of a machine.
std::string remains(const simulated_device& device, const std::string& function) {
  std::string text;
  for (const std::string& finding : device.findings()) text += "; found " + finding;
  for (const auto& [maker, count] : device.alive()) {
    if (maker == made_by(function) && count == 1) continue;
    text += "; " + std::to_string(count) + " of " + maker + " left";
  }
  return text;
}

void nothing() {}

/// What trainings with faults came to.
struct tally {
  std::uint64_t runs = 0;
  std::uint64_t met = 0;
  std::uint64_t failures = 0;
  std::string first;
  std::map<std::string, std::uint64_t> harmless_calls;  // by function

  void note(const training& what, const std::string& fault, const std::string& problem) {
    ++runs;
    if (problem.empty()) return;
    ++failures;
    if (failures <= 5) first += what.name + ", " + fault + ": " + problem + "\n";
  }
};

std::string name_of(const simulated_fault& fault) {
  return fault.function + " call " + std::to_string(fault.call) + " of thread " +
         std::to_string(fault.host_thread) + (fault.lasts ? " and all after it" : "") +
         " returns " + std::to_string(fault.code);
}

/// The rank that made the call says which, and the others hear of it.
std::string blame(const device_run& run, const simulated_fault& fault, tally& result) {
  if (!has_errors(run)) {
    ++result.harmless_calls[fault.function];
    return harmless().contains(fault.function) ? "" : "nobody has an error";
  }
  const std::string code = "(" + std::to_string(fault.code) + ")";
  for (std::size_t rank = 0; rank < run.errors.size(); ++rank) {
    const bool may_be_it = fault.host_thread < 0 || fault.host_thread == static_cast<int>(rank);
    if (may_be_it && run.errors[rank].says(code)) return "";
  }
  return "the code is not said by who saw it";
}

/// Trains while one call fails.
void try_fault(const training& what, const simulated_fault& fault, std::uint64_t seed,
               const trained_state& expected, tally& result) {
  simulated_device device(what.machine(seed));
  device.fail(fault);
  const device_run run = what.train(what.ranks, patience, nothing);
  std::string problem = verdict(run, expected);
  const bool is_met = device.faults_met() != 0;
  result.met += is_met ? 1U : 0U;
  if (problem.empty() && is_met) problem = blame(run, fault, result);
  if (problem.empty() && !is_met && has_errors(run)) problem = "an error without a fault";
  // After a fault that lasts nothing can be given back.
  problem += fault.lasts ? "" : remains(device, fault.function);
  if (!problem.empty()) {
    for (const rank_error& error : run.errors) problem += " | " + error.text;
  }
  result.note(what, name_of(fault), problem);
}

struct fault_free {
  trained_state state;
  std::map<std::string, std::uint64_t> calls;
};

/// Throws: zero::error where it goes wrong.
fault_free train_without_fault(const training& what, std::uint64_t seed, int host_thread) {
  const simulated_device device(what.machine(seed));
  const device_run run = what.train(what.ranks, patience, nothing);
  const std::string problem = run.difference_from(run.states.front()) + remains(device, "");
  if (!problem.empty()) throw error(what.name + ": " + problem);
  return {run.states.front(), device.calls(host_thread)};
}

/// Some of the numbers below `count`, evenly: all where the long form was asked for, a third of
/// `wanted` under sanitizers.
std::vector<std::uint64_t> sample(std::uint64_t count, std::uint64_t wanted, std::uint64_t seed) {
  std::vector<std::uint64_t> numbers;
  if (is_sanitized) wanted = (wanted + 2) / 3;
  if (full_counts() || count <= wanted) wanted = count;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const std::uint64_t first = i * count / wanted;
    const std::uint64_t length = (i + 1) * count / wanted - first;
    numbers.push_back(first + (seed * 7 + i * 5) % length);
  }
  return numbers;
}

std::uint64_t test_seed() {
  return Catch::rngSeed();
}

tally fail_calls(const std::vector<training>& trainings, std::uint64_t wanted) {
  tally result;
  std::uint64_t number = test_seed();
  for (const training& what : trainings) {
    const int victim = static_cast<int>(number % static_cast<std::uint64_t>(what.ranks));
    const fault_free usual = train_without_fault(what, number, victim);
    for (const auto& [function, count] : usual.calls) {
      for (const std::uint64_t call : sample(count, wanted, number)) {
        ++number;
        try_fault(what,
                  {.function = function,
                   .call = call,
                   .code = code_for(function, number),
                   .host_thread = victim},
                  number, usual.state, result);
      }
    }
    // The process goes on.
    if (train_without_fault(what, number, victim).state != usual.state) {
      result.note(what, "no fault", "another state than before");
    }
  }
  return result;
}

/// Trains while a device is lost: from one call on, all that is asked of it fails.
tally lose_devices(const std::vector<training>& trainings, std::uint64_t wanted) {
  tally result;
  std::uint64_t number = test_seed();
  for (const training& what : trainings) {
    // Ranks of cuda_threads share their device.
    const int victim = what.is_nccl ? static_cast<int>(number % 2) : -1;
    const fault_free usual = train_without_fault(what, number, victim);
    for (const std::uint64_t call : sample(usual.calls.at("cudaLaunchKernel"), wanted, number)) {
      ++number;
      try_fault(what,
                {.function = "cudaLaunchKernel",
                 .call = call,
                 .code = cudaErrorIllegalAddress,
                 .host_thread = victim,
                 .lasts = true},
                number, usual.state, result);
    }
  }
  return result;
}

/// Trains while one rank does not come back from a call before all others have ended. The call is
/// one outside of collectives: once all ranks have met in one of cuda_threads, each relies on the
/// others to come back from CUDA.
tally stall_calls(const std::vector<training>& trainings, std::uint64_t wanted) {
  tally result;
  std::uint64_t number = test_seed();
  for (const training& what : trainings) {
    const int victim = static_cast<int>(number % 2);
    const fault_free usual = train_without_fault(what, number, victim);
    for (const std::uint64_t call : sample(usual.calls.at("cudaMalloc"), wanted, number)) {
      ++number;
      simulated_device device(what.machine(number));
      device.stall("cudaMalloc", call, victim);
      std::atomic<int> ended{0};
      const device_run run = what.train(what.ranks, std::chrono::milliseconds(300), [&] {
        if (++ended == what.ranks - 1) device.go_on();
      });
      result.met += device.faults_met() != 0 ? 1U : 0U;
      result.note(what, "cudaMalloc call " + std::to_string(call) + " stalls",
                  verdict(run, usual.state, true) + remains(device, ""));
    }
  }
  return result;
}

/// Trains while a rank of NCCL never arrives at a collective, or NCCL fails there by itself.
tally break_collectives(const std::vector<training>& trainings, std::uint64_t wanted) {
  tally result;
  std::uint64_t number = test_seed();
  for (const training& what : trainings) {
    const fault_free usual = train_without_fault(what, number, 0);
    std::uint64_t collectives = 0;
    for (const auto* function :
         {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclBroadcast"}) {
      const auto found = usual.calls.find(function);
      if (found != usual.calls.end()) collectives += found->second;
    }
    for (const std::uint64_t sequence : sample(collectives, wanted, number)) {
      for (const bool arrives : {false, true}) {
        ++number;
        const int victim = static_cast<int>(number / 2 % 2);
        simulated_device device(what.machine(number));
        if (arrives) {
          device.asynchronous_error(victim, sequence, ncclRemoteError);
        } else {
          device.never_arrives(victim, sequence);
        }
        const device_run run =
            what.train(what.ranks, arrives ? patience : std::chrono::milliseconds(300), nothing);
        std::string problem = verdict(run, usual.state, !arrives);
        // An error of NCCL may come when all is done.
        if (problem.empty() && !arrives && !has_errors(run)) problem = "nobody has an error";
        result.met += has_errors(run) ? 1U : 0U;
        result.note(what,
                    (arrives ? "an asynchronous error at #" : "nobody at #") +
                        std::to_string(sequence) + " of rank " + std::to_string(victim),
                    problem + remains(device, ""));
      }
    }
  }
  return result;
}

void report(const tally& result) {
  std::string text;
  for (const auto& [function, count] : result.harmless_calls) {
    text += ", " + std::to_string(count) + " " + function;
  }
  WARN("seed " << test_seed() << ": " << result.runs << " runs, " << result.met << " faults met, "
               << result.failures << " failures; without consequence" << text);
  CHECK(result.first == "");
  CHECK(result.met * 10 >= result.runs * 9);
}

}  // namespace

TEST_CASE("a call of CUDA that fails on one rank is a typed error on all: cuda_threads") {
  report(fail_calls(trainings_of<cuda_threads_ranks>("cuda_threads", false), 5));
}

TEST_CASE("a call of CUDA or NCCL that fails on one rank is a typed error on all: nccl") {
  report(fail_calls(trainings_of<nccl_ranks>("nccl", true), 3));
}

TEST_CASE("a device that is lost is a typed error on all ranks: cuda_threads") {
  report(lose_devices(trainings_of<cuda_threads_ranks>("cuda_threads", false), 6));
}

TEST_CASE("a device that is lost is a typed error on all ranks: nccl") {
  report(lose_devices(trainings_of<nccl_ranks>("nccl", true), 4));
}

TEST_CASE("a rank that does not come back ends in timeouts: cuda_threads") {
  report(stall_calls(trainings_of<cuda_threads_ranks>("cuda_threads", false), 2));
}

TEST_CASE("a rank that does not come back ends in timeouts: nccl") {
  report(stall_calls(trainings_of<nccl_ranks>("nccl", true), 1));
}

TEST_CASE("a rank that never arrives, and an error of NCCL by itself, end typed on all ranks") {
  report(break_collectives(trainings_of<nccl_ranks>("nccl", true), 2));
}
