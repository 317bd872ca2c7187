// SPDX-License-Identifier: Apache-2.0
#include "support/simulated_device/machine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "support/simulated_device/graph.hpp"

namespace zero::test {
namespace simulated {

machine& machine::instance() {
  static machine the_machine;
  return the_machine;
}

int& host_thread_number() {
  thread_local int number = -1;
  return number;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

int& last_error_code() {
  thread_local int code = 0;
  return code;
}

void machine::start(const simulated_device_options& options) {
  if (is_on_) throw std::logic_error("simulated_device: another one exists");
  is_on_ = true;
  options_ = options;
  random_.seed(options.seed);
  laziness_ = std::min<std::uint64_t>(random(24), 16);
  last_error_code() = 0;
  goes_on_ = false;
  streams_made_ = order_ = nodes_run_ = faults_met_ = looks_ = 0;
  calls_.clear();
  faults_.clear();
  findings_.clear();
  absent.clear();
  async_errors.clear();
}

void machine::stop() {
  reset_nccl();
  reset_graphs();
  streams_.clear();
  events_.clear();
  for (const auto& [address, device] : allocations) std::free(address);
  for (const auto& [address, bytes] : pinned) std::free(address);
  allocations.clear();
  pinned.clear();
  is_on_ = false;
}

bool machine::is_pinned(const void* begin, std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(begin);
  return std::any_of(pinned.begin(), pinned.end(), [&](const auto& block) {
    const auto* const address = static_cast<const std::byte*>(block.first);
    return address <= first && first + bytes <= address + block.second;
  });
}

int machine::count_call(std::string_view function) {
  const std::string name(function);
  const std::uint64_t of_all = calls_[{name, -1}]++;
  const int thread = host_thread_number();
  const std::uint64_t of_thread = thread < 0 ? 0 : calls_[{name, thread}]++;
  for (const simulated_fault& fault : faults_) {
    const bool is_due =
        fault.function == name &&
        (fault.host_thread < 0 ? fault.call == of_all
                               : fault.host_thread == thread && fault.call == of_thread);
    if (!is_due && !lasts_for(fault, name)) continue;
    ++faults_met_;
    return fault.code;
  }
  return 0;
}

bool machine::lasts_for(const simulated_fault& fault, std::string_view function) const {
  if (!fault.lasts || function.substr(0, 4) != "cuda") return false;
  if (fault.host_thread >= 0 && fault.host_thread != host_thread_number()) return false;
  return calls(fault.function, fault.host_thread) > fault.call;
}

void machine::stay(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return goes_on_; });
}

void machine::go_on() {
  goes_on_ = true;
  note_change();
}

std::uint64_t machine::calls(const std::string& function, int host_thread) const {
  const auto found = calls_.find({function, host_thread});
  return found == calls_.end() ? 0 : found->second;
}

std::map<std::string, std::uint64_t> machine::calls(int host_thread) const {
  std::map<std::string, std::uint64_t> counts;
  for (const auto& [key, count] : calls_) {
    if (key.second == host_thread) counts[key.first] = count;
  }
  return counts;
}

std::map<std::string, std::uint64_t> machine::alive() const {
  std::map<std::string, std::uint64_t> counts{
      {"cudaMalloc", allocations.size()},
      {"cudaMallocHost", pinned.size()},
      {"cudaStreamCreateWithPriority",
       static_cast<std::uint64_t>(std::count_if(streams_.begin(), streams_.end(),
                                                [](const auto& s) { return !s->is_lane; }))},
      {"cudaGraph", living_graphs()},
      {"cudaEventCreateWithFlags", events_.size()},
      {"ncclCommInitRankConfig", living_communicators()},
  };
  std::erase_if(counts, [](const auto& entry) { return entry.second == 0; });
  return counts;
}

stream* machine::add_stream(int device) {
  streams_.push_back(std::make_unique<stream>());
  streams_.back()->device = device;
  streams_.back()->number = streams_made_++;
  streams_.back()->priority = random_();
  return streams_.back().get();
}

stream* machine::find_stream(const void* handle) {
  for (const auto& s : streams_) {
    if (s.get() == handle) return s.get();
  }
  return nullptr;
}

void machine::remove_stream(stream* s) {
  std::erase_if(streams_, [s](const auto& owned) { return owned.get() == s; });
}

event* machine::add_event(int device) {
  events_.push_back(std::make_unique<event>());
  events_.back()->device = device;
  return events_.back().get();
}

event* machine::find_event(const void* handle) {
  for (const auto& e : events_) {
    if (e.get() == handle) return e.get();
  }
  return nullptr;
}

void machine::remove_event(event* e) {
  std::erase_if(events_, [e](const auto& owned) { return owned.get() == e; });
}

std::uint64_t machine::random(std::uint64_t below) {
  return random_() % below;
}

stream& machine::add_lane(int device) {
  stream& lane = *add_stream(device);
  lane.is_lane = true;
  return lane;
}

stream* machine::find_lane(std::uint64_t number) {
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const auto& s) { return s->is_lane && s->number == number; });
  return found == streams_.end() ? nullptr : found->get();
}

void machine::release_from(const capture& c) {
  for (const auto& s : streams_) {
    if (s->part_of.get() != &c) continue;
    s->part_of.reset();
    s->ends.clear();
  }
}

void machine::enqueue(stream& s, node n) {
  if (s.part_of) return add_to_capture(s, [n = std::move(n)] { return std::vector<node>{n}; });
  push(s, std::move(n));
  if (laziness_ < 16) take_some_steps();
}

void machine::push(stream& s, node n) {
  s.nodes.push_back(std::move(n));
  ++s.enqueued;
  note_change();
}

void machine::take_some_steps() {
  if (random(17) < laziness_) return;
  for (std::uint64_t left = random(4); left > 0 && step(); --left) {
  }
}

void machine::look() {
  if (++looks_ % 8 != 0) return take_some_steps();
  for (std::uint64_t left = random(64); left > 0 && step(); --left) {
  }
}

bool machine::step() {
  std::vector<stream*> runnable;
  for (const auto& s : streams_) {
    if (s->nodes.empty()) continue;
    const node& head = s->nodes.front();
    if (!head.is_ready || head.is_ready()) runnable.push_back(s.get());
  }
  if (runnable.empty()) return false;
  // Streams that race ahead for long stretches while others starve find more mistakes than a fair
  // lottery does.
  const auto by_priority = [](const stream* a, const stream* b) {
    return a->priority < b->priority;
  };
  stream& chosen = random(8) == 0
                       ? *runnable[random(runnable.size())]
                       : **std::max_element(runnable.begin(), runnable.end(), by_priority);
  if (random(32) == 0) chosen.priority = random_();
  const node n = std::move(chosen.nodes.front());
  chosen.nodes.pop_front();
  if (n.run) n.run();
  ++chosen.ran;
  ++nodes_run_;
  order_ = (order_ ^ (chosen.number + 1)) * 0x9E3779B97F4A7C15U;
  order_ ^= order_ >> 29U;
  if (chosen.is_lane && chosen.nodes.empty()) remove_stream(&chosen);
  note_change();
  return true;
}

bool machine::drain(std::unique_lock<std::mutex>& lock, int device, const std::string& what) {
  std::map<std::uint64_t, std::uint64_t> upto;  // stream, nodes
  for (const auto& s : streams_) {
    if (s->device == device) upto[s->number] = s->enqueued;
  }
  const auto is_done = [&] {
    return std::none_of(streams_.begin(), streams_.end(), [&](const auto& s) {
      const auto found = upto.find(s->number);
      return found != upto.end() && s->ran < found->second;
    });
  };
  return drive(lock, is_done, what);
}

bool machine::drive(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_fulfilled,
                    const std::string& what) {
  while (!is_fulfilled()) {
    if (step()) {
      // Other host threads get their turn in the middle of a wait, too.
      if (random(8) == 0) {
        lock.unlock();
        lock.lock();
      }
      continue;
    }
    const auto seen = changed_.wait_for(lock, options_.patience);
    if (seen == std::cv_status::timeout && !is_fulfilled() && !step()) {
      find("deadlock: " + what + " waits for ever; " + describe_heads());
      return false;
    }
  }
  return true;
}

std::string machine::describe_heads() const {
  std::string text;
  for (const auto& s : streams_) {
    if (s->nodes.empty()) continue;
    text += (text.empty() ? "" : "; ");
    text += "stream " + std::to_string(s->number) + " of device " + std::to_string(s->device) +
            " is stuck at " + s->nodes.front().name + " with " +
            std::to_string(s->nodes.size() - 1) + " nodes behind it";
  }
  return text.empty() ? "all streams are empty" : text;
}

void machine::drop_nodes_of(const void* owner) {
  for (const auto& s : streams_) {
    const auto before = s->nodes.size();
    std::erase_if(s->nodes, [owner](const node& n) { return n.owner == owner; });
    s->ran += before - s->nodes.size();
  }
  note_change();
}

bool machine::has_nodes_of(const void* owner) const {
  return std::any_of(streams_.begin(), streams_.end(), [owner](const auto& s) {
    return std::any_of(s->nodes.begin(), s->nodes.end(),
                       [owner](const node& n) { return n.owner == owner; });
  });
}

}  // namespace simulated

simulated_device::simulated_device(simulated_device_options options) {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  m.start(options);
}

simulated_device::~simulated_device() {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  m.stop();
}

void simulated_device::name_host_thread(int number) {
  simulated::host_thread_number() = number;
}

void simulated_device::fail(simulated_fault fault) {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  m.plan(std::move(fault));
}

void simulated_device::stall(const std::string& function, std::uint64_t call, int host_thread) {
  fail({.function = function,
        .call = call,
        .code = simulated::machine::stalls,
        .host_thread = host_thread});
}

void simulated_device::go_on() {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  m.go_on();
}

void simulated_device::drop_wait(std::uint64_t call, int host_thread) {
  // cudaErrorNotReady is no error of a wait: the runtime's part reads it as "do nothing".
  constexpr int dropped = 600;
  fail({.function = "cudaStreamWaitEvent",
        .call = call,
        .code = dropped,
        .host_thread = host_thread});
}

std::uint64_t simulated_device::waits(int host_thread) const {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  return m.calls("cudaStreamWaitEvent", host_thread);
}

std::map<std::string, std::uint64_t> simulated_device::calls(int host_thread) const {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  return m.calls(host_thread);
}

std::uint64_t simulated_device::faults_met() const {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  return m.faults_met();
}

std::map<std::string, std::uint64_t> simulated_device::alive() const {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  return m.alive();
}

void simulated_device::drop_wait_in(const void* stream, std::uint64_t call) {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  simulated::stream* const s = m.find_stream(stream);
  if (s == nullptr) throw std::logic_error("simulated_device: no such stream");
  s->dropped.insert(call);
}

std::uint64_t simulated_device::waits_in(const void* stream) const {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  const simulated::stream* const s = m.find_stream(stream);
  return s == nullptr ? 0 : s->waits;
}

void simulated_device::never_arrives(int rank, std::uint64_t sequence) {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  m.absent.emplace(rank, sequence);
}

void simulated_device::asynchronous_error(int rank, std::uint64_t sequence, int code) {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  m.async_errors[{rank, sequence}] = code;
}

std::uint64_t simulated_device::order() const {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  return m.order();
}

std::uint64_t simulated_device::nodes_run() const {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  return m.nodes_run();
}

std::vector<std::string> simulated_device::findings() const {
  auto& m = simulated::machine::instance();
  const auto lock = m.lock();
  return m.findings();
}

}  // namespace zero::test
