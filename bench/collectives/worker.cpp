// SPDX-License-Identifier: Apache-2.0
#include "worker.hpp"

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <new>

#include "wire.hpp"

namespace collectives_bench {
namespace {

/// A rank whose program has ended notices it by the closed channel, not by this limit.
constexpr std::chrono::milliseconds longest_idle = std::chrono::hours(1);

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void* map_memory(std::size_t bytes, int sharing) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return data;
}

reply answer(const worker& self, contender& subject, const request& asked) {
  reply result;
  if (asked.what == command::verify) {
    verify(subject, asked.load);
    return result;
  }
  self.meet();
  const double cpu_start = seconds_of(self.cpu_clock);
  const double start = seconds_of(CLOCK_MONOTONIC);
  for (std::uint32_t i = 0; i < asked.iterations; ++i) subject.run(asked.load);
  result.seconds = (seconds_of(CLOCK_MONOTONIC) - start) / asked.iterations;
  result.cpu_seconds = (seconds_of(self.cpu_clock) - cpu_start) / asked.iterations;
  return result;
}

}  // namespace

bool worker::serve(const contender_map& contenders) const {
  send_object(channel, reply{});  // ready
  request asked;
  while (receive_object(channel, asked, longest_idle)) {
    reply result;
    try {
      result = answer(*this, *contenders.at(asked.subject), asked);
    } catch (const std::exception& error) {
      result.set_failure(error.what());
    }
    send_object(channel, result);
    if (!result.failure_text().empty()) return false;
  }
  return true;
}

memory_block::memory_block(std::uint64_t bytes)
    : data_(static_cast<std::byte*>(map_memory(static_cast<std::size_t>(bytes), MAP_PRIVATE))),
      bytes_(static_cast<std::size_t>(bytes)) {
  std::memset(data_, 0, bytes_);
}

memory_block::~memory_block() {
  ::munmap(data_, bytes_);
}

shared_barrier::shared_barrier(int size)
    : barrier_(static_cast<pthread_barrier_t*>(map_memory(sizeof(pthread_barrier_t), MAP_SHARED))) {
  pthread_barrierattr_t attributes;
  ::pthread_barrierattr_init(&attributes);
  ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_barrier_init(barrier_, &attributes, static_cast<unsigned>(size));
  ::pthread_barrierattr_destroy(&attributes);
}

// Not destroyed: ranks that were killed may never have left it.
shared_barrier::~shared_barrier() {
  ::munmap(barrier_, sizeof(pthread_barrier_t));
}

}  // namespace collectives_bench
